# SPDX-License-Identifier: GPL-2.0-or-later
"""The data base of the mix that is like TPC-C: its tables, what is in them at first, and the five
transactions as functions.

Cardinalities are the standard's (clause 1.2.1) for each warehouse, of which all are divided by
`divisor` at smaller scales, and its text columns are filled so that rows have the standard's sizes.
A remote warehouse and a customer by name are left out: it is like TPC-C, and no result of it.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import die
from ramlab.guest.case_work import AS_POSTGRES
from ramlab.guest.size_work import Transactions

ITEMS, CUSTOMERS, ORDERS = 100_000, 3000, 3000
# Of the orders of a district, those that are not delivered: the newest.
NEW_SHARE = 0.3
CONFIGURATION = """\
listen_addresses = ''
shared_buffers = 16MB
max_connections = 20
dynamic_shared_memory_type = mmap
timezone = 'GMT'
log_timezone = 'GMT'
autovacuum = off
jit = off
checkpoint_timeout = 1h
max_wal_size = 64MB
min_wal_size = 32MB
lc_messages = 'C'
"""
TABLES = """
CREATE TABLE warehouse (w_id int PRIMARY KEY, w_tax numeric, w_ytd numeric, w_text text);
CREATE TABLE district (d_w_id int, d_id int, d_tax numeric, d_ytd numeric, d_next_o_id int,
    d_text text, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (c_w_id int, c_d_id int, c_id int, c_balance numeric, c_ytd numeric,
    c_payments int, c_deliveries int, c_text text, PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE TABLE history (h_w_id int, h_d_id int, h_c_id int, h_amount numeric, h_text text);
CREATE TABLE orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_carrier int, o_ol_cnt int,
    PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int,
    PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int,
    ol_quantity int, ol_amount numeric, ol_delivered bool, ol_text text,
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
CREATE TABLE item (i_id int PRIMARY KEY, i_price numeric, i_text text);
CREATE TABLE stock (s_w_id int, s_i_id int, s_quantity int, s_ytd int, s_orders int, s_text text,
    PRIMARY KEY (s_w_id, s_i_id));
"""
# The n-th draw of a transaction, between low and high.
FUNCTIONS = """
CREATE FUNCTION drawn(draw bigint, n int, low int, high int) RETURNS int LANGUAGE sql IMMUTABLE AS
    $$ SELECT low + (abs(hashint8extended(draw, n) % (high - low + 1)))::int $$;

CREATE FUNCTION new_order(w int, d int, draw bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    number int;
    lines int := drawn(draw, 0, 5, 15);
    which int;
    price numeric;
    much int;
BEGIN
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
        RETURNING d_next_o_id - 1 INTO number;
    PERFORM c_balance FROM customer WHERE c_w_id = w AND c_d_id = d
        AND c_id = drawn(draw, 1, 1, {customers});
    INSERT INTO orders VALUES (w, d, number, drawn(draw, 1, 1, {customers}), NULL, lines);
    INSERT INTO new_order VALUES (w, d, number);
    -- In the order of items, so that two transactions never wait for each other
    FOR line IN 1..lines LOOP
        which := 1 + (line - 1) * {items} / lines + drawn(draw, 1 + line, 0, {items} / lines - 1);
        much := drawn(draw, 100 + line, 1, 10);
        SELECT i_price INTO price FROM item WHERE i_id = which;
        UPDATE stock SET s_quantity = CASE WHEN s_quantity >= much + 10 THEN s_quantity - much
            ELSE s_quantity - much + 91 END, s_ytd = s_ytd + much, s_orders = s_orders + 1
            WHERE s_w_id = w AND s_i_id = which;
        INSERT INTO order_line VALUES (w, d, number, line, which, much, much * price, false,
            repeat('d', 24));
    END LOOP;
    RETURN number;
END $$;

CREATE FUNCTION payment(w int, d int, draw bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    amount numeric := drawn(draw, 0, 100, 500000) / 100.0;
    who int := drawn(draw, 1, 1, {customers});
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
    UPDATE customer SET c_balance = c_balance - amount, c_ytd = c_ytd + amount,
        c_payments = c_payments + 1 WHERE c_w_id = w AND c_d_id = d AND c_id = who;
    INSERT INTO history VALUES (w, d, who, amount, repeat('h', 24));
END $$;

CREATE FUNCTION order_status(w int, d int, draw bigint) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    who int := drawn(draw, 1, 1, {customers});
    number int;
BEGIN
    PERFORM c_balance FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = who;
    SELECT max(o_id) INTO number FROM orders WHERE o_w_id = w AND o_d_id = d
        AND o_id > {orders} - 100 AND o_c_id = who;
    RETURN (SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = w AND ol_d_id = d
        AND ol_o_id = coalesce(number, drawn(draw, 2, 1, {orders})));
END $$;

CREATE FUNCTION delivery(w int, d int, draw bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    number int;
    who int;
BEGIN
    -- One delivery of a warehouse at a time
    PERFORM pg_advisory_xact_lock(w);
    FOR place IN 1..10 LOOP
        SELECT min(no_o_id) INTO number FROM new_order WHERE no_w_id = w AND no_d_id = place;
        CONTINUE WHEN number IS NULL;
        DELETE FROM new_order WHERE no_w_id = w AND no_d_id = place AND no_o_id = number;
        UPDATE orders SET o_carrier = drawn(draw, 0, 1, 10) WHERE o_w_id = w AND o_d_id = place
            AND o_id = number RETURNING o_c_id INTO who;
        UPDATE order_line SET ol_delivered = true WHERE ol_w_id = w AND ol_d_id = place
            AND ol_o_id = number;
        UPDATE customer SET c_deliveries = c_deliveries + 1, c_balance = c_balance +
            (SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = w AND ol_d_id = place
            AND ol_o_id = number) WHERE c_w_id = w AND c_d_id = place AND c_id = who;
    END LOOP;
END $$;

CREATE FUNCTION stock_level(w int, d int, draw bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    following int;
BEGIN
    SELECT d_next_o_id INTO following FROM district WHERE d_w_id = w AND d_id = d;
    RETURN (SELECT count(DISTINCT ol_i_id) FROM order_line JOIN stock ON s_w_id = w
        AND s_i_id = ol_i_id WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= following - 20
        AND ol_o_id < following AND s_quantity < drawn(draw, 0, 10, 20));
END $$;
"""
ROWS = """
SELECT setseed(0.5);
INSERT INTO item SELECT i, 1 + i % 9900 / 100.0, repeat('i', 70)
    FROM generate_series(1, {items}) AS i;
INSERT INTO warehouse SELECT w, 0.1, 300000, repeat('w', 80) FROM generate_series(1, {w}) AS w;
INSERT INTO district SELECT w, d, 0.1, 30000, {orders} + 1, repeat('d', 80)
    FROM generate_series(1, {w}) AS w, generate_series(1, 10) AS d;
INSERT INTO customer SELECT w, d, c, -10, 10, 1, 0, repeat('c', 560)
    FROM generate_series(1, {w}) AS w, generate_series(1, 10) AS d,
    generate_series(1, {customers}) AS c;
INSERT INTO history SELECT c_w_id, c_d_id, c_id, 10, repeat('h', 24) FROM customer;
INSERT INTO orders SELECT w, d, o, 1 + (o * 7919) % {customers},
    CASE WHEN o <= {delivered} THEN 1 + o % 10 END, 5 + (random() * 10)::int
    FROM generate_series(1, {w}) AS w, generate_series(1, 10) AS d,
    generate_series(1, {orders}) AS o;
INSERT INTO new_order SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_id > {delivered};
INSERT INTO order_line SELECT o_w_id, o_d_id, o_id, line, 1 + (random() * ({items} - 1))::int, 5,
    0, o_id <= {delivered}, repeat('d', 24) FROM orders, generate_series(1, o_ol_cnt) AS line;
INSERT INTO stock SELECT w, i, 10 + (random() * 90)::int, 0, 0, repeat('s', 270)
    FROM generate_series(1, {w}) AS w, generate_series(1, {items}) AS i;
VACUUM ANALYZE;
CHECKPOINT;
"""


def settings(warehouses, divisor, transactions, clients=4):
    """The size of the data base and of the mix; orders are those of all warehouses."""
    return {"warehouses": warehouses, "divisor": divisor, "transactions": transactions,
            "clients": clients, "orders": warehouses * 10 * (ORDERS // divisor)}


def statements(work):
    """All of the data base, as SQL."""
    orders = ORDERS // work["divisor"]
    text = TABLES + FUNCTIONS + ROWS
    for name, value in {"w": work["warehouses"], "items": ITEMS // work["divisor"],
                        "customers": CUSTOMERS // work["divisor"], "orders": orders,
                        "delivered": round(orders * (1 - NEW_SHARE))}.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def make(folder, work):
    """The data base as a folder of PostgreSQL's, made by a server on this host."""
    data = folder / "data"
    if data.exists():
        return data
    with tempfile.TemporaryDirectory(prefix="size-", dir="/var/tmp") as home:
        home = Path(home)
        shutil.chown(home, "postgres", "postgres")
        place, sql = home / "data", home / "all.sql"
        sql.write_text(statements(work))
        sql.chmod(0o644)
        logged = home / "log"
        must("initdb", "-D", place, "--no-locale", "-E", "UTF8", "--no-sync")
        (place / "postgresql.conf").write_text(CONFIGURATION)
        must("pg_ctl", "-D", place, "-l", logged, "-w", "-o", f"-k {home}", "start")
        try:
            must("psql", "-h", home, "-Xq", "-v", "ON_ERROR_STOP=1", "-f", sql, "postgres")
        finally:
            must("pg_ctl", "-D", place, "-m", "fast", "-w", "stop")
        fresh = folder / f"data.{os.getpid()}"
        subprocess.run(["cp", "-a", place, fresh], check=True)
    fresh.rename(data)
    return data


def must(program, *words):
    """Calls a program of PostgreSQL's as its user."""
    line = [*AS_POSTGRES, f"{Transactions.BIN}/{program}", *map(str, words)]
    # A server that is started with its output in a pipe keeps that open
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(line, cwd="/tmp", stdout=output, stderr=output)
        output.seek(0)
        if done.returncode:
            die(f"{program} ended with status {done.returncode}: {output.read()[-2000:]}")


def root_files(folder, work, libraries):
    """{path in the root: path here}: the server, what asks it, and the data base."""
    programs = [f"{Transactions.BIN}/{name}" for name in ("postgres", "psql", "pgbench",
                                                         "pg_isready")]
    programs.append("/usr/lib/postgresql/15/lib/plpgsql.so")
    return {path: os.path.realpath(path) for path in libraries(*programs)} | {
        "/usr/share/postgresql/15/timezonesets": "/usr/share/postgresql/15/timezonesets",
        "/etc/passwd": "/etc/passwd", "/data": str(make(folder, work))}


def expected(work):
    """What must come out: nothing that breaks a condition, no failure, every order there."""
    each = work["transactions"] // work["clients"]
    return dict.fromkeys(Transactions.CONDITIONS, 0) | {
        "transactions": each * work["clients"], "failed": 0, "orders_missing": 0}
