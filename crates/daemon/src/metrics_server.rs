//! Serves the metrics over HTTP: one thread for any number of clients, none of them for long.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use crate::metrics::DaemonMetrics;
use crate::metrics::text_format::{accepts_open_metrics, text_0_0_4};

/// The page at `/`.
const HELP: &str = "ramsliced: metrics for Prometheus are at /metrics\n";
const PLAIN: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The most connections at a time. More wait in the kernel's queue.
const MOST: usize = 64;
/// How long a connection may last, from its start to the end of the answer.
const LONGEST: Duration = Duration::from_secs(10);
/// The pause between attempts to accept, if the kernel has no room for another connection.
const AGAIN: Duration = Duration::from_millis(100);

/// A server in its own thread. Dropping it closes the port.
pub struct MetricsServer {
    address: SocketAddr,
    /// Dropping it ends the server.
    end: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at `address`; with port 0, at a free port.
    ///
    /// # Errors
    /// If the address is in use, or the machine has no such address.
    pub fn start(address: SocketAddr, metrics: Arc<DaemonMetrics>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || runtime.block_on(serve(listener, metrics, ended)))?;
        Ok(Self { address, end: Some(end), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported there.
            let _ = thread.join();
        }
    }
}

/// Serves until `ended`. Connections still open then are closed with the runtime.
async fn serve(
    listener: TcpListener,
    metrics: Arc<DaemonMetrics>,
    mut ended: oneshot::Receiver<Infallible>,
) {
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let next = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            _ = &mut ended => return,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let metrics = Arc::clone(&metrics);
                tokio::spawn(async move {
                    if tokio::time::timeout(LONGEST, converse(stream, &metrics)).await.is_err() {
                        tracing::debug!("a connection for metrics took too long");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics could not be accepted");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// One request and its answer.
async fn converse(stream: TcpStream, metrics: &DaemonMetrics) {
    let service =
        service_fn(|request| async move { Ok::<_, Infallible>(answer(&request, metrics)) });
    let connection =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a scrape was interrupted");
    }
}

fn answer(request: &Request<Incoming>, metrics: &DaemonMetrics) -> Response<Full<Bytes>> {
    let accept = request.headers().get_all(ACCEPT);
    let open_metrics =
        accept.iter().filter_map(|value| value.to_str().ok()).any(accepts_open_metrics);
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            if open_metrics {
                (StatusCode::OK, OPEN_METRICS, metrics.text())
            } else {
                (StatusCode::OK, TEXT_FORMAT, text_0_0_4(&metrics.text()))
            }
        }
        (&Method::GET | &Method::HEAD, "/") => (StatusCode::OK, PLAIN, HELP.to_owned()),
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, PLAIN, "there is only /metrics\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn start(address: &str) -> io::Result<MetricsServer> {
        MetricsServer::start(address.parse().unwrap(), Arc::new(DaemonMetrics::new()))
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let accept = "Accept: application/openmetrics-text; version=1.0.0, text/plain";
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n{accept}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn metrics_are_served_and_nothing_else_is() {
        let serving = start("127.0.0.1:0").unwrap();
        let address = serving.address();
        let text = ask(address, "GET /metrics");
        assert!(
            text.starts_with("HTTP/1.1 200") && text.contains("application/openmetrics-text"),
            "{text}"
        );
        assert!(text.contains("ramslice_up 0") && text.contains("# EOF"), "{text}");
        assert!(!ask(address, "HEAD /metrics").contains("# EOF"));
        assert!(ask(address, "GET /metrics?all").contains("# EOF"));
        assert!(ask(address, "GET /other").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics").starts_with("HTTP/1.1 405"));
    }

    #[test]
    fn who_does_not_accept_open_metrics_gets_the_text_format() {
        let serving = start("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(serving.address()).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
        assert!(text.contains("ramslice_up 0") && !text.contains("# EOF"), "{text}");
        assert!(text.contains("# TYPE ramslice_build_info gauge"), "{text}");
    }

    #[test]
    fn a_silent_client_keeps_no_other_client_waiting() {
        let serving = start("127.0.0.1:0").unwrap();
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let (before, address) = (threads(), serving.address());
        let idle: Vec<TcpStream> =
            (1..MOST).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address, "GET /metrics").contains("# EOF"));
        // Other tests have theirs, but not one for each of these.
        assert!(threads() < before + idle.len() / 2);
    }

    #[test]
    fn once_dropped_its_port_is_free_even_for_all_addresses() {
        let serving = start("127.0.0.1:0").unwrap();
        let port = serving.address().port();
        assert!(ask(serving.address(), "GET /metrics").contains("# EOF"));
        let open = TcpStream::connect(serving.address()).unwrap();
        let taken = start(&serving.address().to_string()).err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(serving);
        let wider = start(&format!("0.0.0.0:{port}")).unwrap();
        assert_eq!(wider.address().port(), port);
        drop(open);
    }
}
