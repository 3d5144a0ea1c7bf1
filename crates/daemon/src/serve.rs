//! Serves the metrics over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tiny_http::{Header, Method, Request, Response, Server};

use crate::metrics::Metrics;

/// What a browser sees.
const HELP: &str = "ramsliced: metrics for Prometheus are at /metrics\n";

/// A server in its own thread; it ends when this is dropped.
pub struct Serving {
    server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Listens at `address`; with port 0, at one that is free.
    ///
    /// # Errors
    /// If that cannot be had: somebody else listens there, or the machine has no such address.
    pub fn start(address: SocketAddr, metrics: Arc<Metrics>) -> io::Result<Self> {
        let server = Server::http(address).map_err(|error| match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        })?;
        let address = server.server_addr().to_ip().unwrap_or(address);
        let server = Arc::new(server);
        let serving = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            for request in serving.incoming_requests() {
                answer(request, &metrics);
            }
        })?;
        Ok(Self { server, address, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // Whoever panicked there has said so.
            let _ = thread.join();
        }
    }
}

fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("the headers are ASCII")
}

fn answer(request: Request, metrics: &Metrics) {
    let plain = header("Content-Type", "text/plain; charset=utf-8");
    let path = request.url().split('?').next().unwrap_or_default();
    let response = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => Response::from_string(metrics.text()).with_header(
            header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ),
        (Method::Get | Method::Head, "/") => Response::from_string(HELP).with_header(plain),
        (Method::Get | Method::Head, _) => {
            Response::from_string("there is only /metrics\n").with_status_code(404).with_header(plain)
        }
        _ => Response::from_string("only GET\n").with_status_code(405).with_header(plain),
    };
    if let Err(error) = request.respond(response) {
        tracing::debug!(%error, "a scrape was broken off");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn metrics_are_served_until_it_is_dropped_and_nothing_else_is() {
        let serving = Serving::start("127.0.0.1:0".parse().unwrap(), Arc::new(Metrics::new())).unwrap();
        let address = serving.address();
        let text = ask(address, "GET /metrics");
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("application/openmetrics-text"), "{text}");
        assert!(text.contains("ramslice_up 0") && text.contains("# EOF"), "{text}");
        assert!(ask(address, "GET /other").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics").starts_with("HTTP/1.1 405"));
        let taken = Serving::start(address, Arc::new(Metrics::new())).err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(serving);
        // The port is closed by another thread of the server's.
        while TcpStream::connect(address).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
