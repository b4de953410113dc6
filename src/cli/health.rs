//! `ibex health`: asks a running server for `/health` or `/ready`. For containers, whose image has no other client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{self, ServerConfig, Variables};

use super::args::HealthArgs;
use super::{CliError, Out};

/// Time for the whole question.
const TIME: Duration = Duration::from_secs(2);
/// More than any answer takes.
const MOST_BYTES: usize = 64 << 10;
/// The variable that says where the server listens.
const LISTEN: &str = "IBEX_SERVER__LISTEN";

/// Succeeds when the server answers 200. Neither the store nor the rest of the configuration is looked at.
///
/// # Errors
/// When it does not, or not in time; the text says why.
pub(super) async fn run(
    args: HealthArgs,
    file: Option<&Path>,
    env: &Variables,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let path = if args.ready { "/ready" } else { "/health" };
    let authority = match &args.url {
        Some(url) => authority(url)?,
        None => own(listen(file, env)).to_string(),
    };
    let failed = |reason: &str| CliError::Failed(format!("http://{authority}{path}: {reason}"));
    let (status, body) = match timeout(TIME, ask(&authority, path)).await {
        Ok(answer) => answer.map_err(|reason| failed(&reason))?,
        Err(_) => return Err(failed("no answer in time")),
    };
    let state = state(&body);
    let state = state.as_deref().unwrap_or("unknown");
    if status != StatusCode::OK {
        return Err(failed(&format!("{} ({state})", status.as_u16())));
    }
    Ok(out.one(&json!({"status": state}), state)?)
}

/// Where the server of this configuration listens. A configuration with faults elsewhere still tells.
fn listen(file: Option<&Path>, env: &Variables) -> SocketAddr {
    let said = || env.get(LISTEN).and_then(|said| said.parse().ok());
    match config::load(file, env) {
        Ok(loaded) => loaded.config.server.listen,
        Err(_) => said().unwrap_or(ServerConfig::default().listen),
    }
}

/// An address that listens everywhere is asked on this machine.
fn own(mut address: SocketAddr) -> SocketAddr {
    let ip = address.ip();
    if ip.is_unspecified() {
        address.set_ip(match ip {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn authority(url: &Uri) -> Result<String, CliError> {
    let host = url.host().unwrap_or_default();
    if url.scheme_str() != Some("http") || host.is_empty() {
        let text = "--url has to be http://HOST:PORT, with nothing behind it";
        return Err(CliError::Usage(text.to_owned()));
    }
    Ok(format!("{host}:{}", url.port_u16().unwrap_or(80)))
}

async fn ask(authority: &str, path: &str) -> Result<(StatusCode, Bytes), String> {
    let stream = TcpStream::connect(authority);
    let stream = stream.await.map_err(|e| e.kind().to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    let request = Request::get(path)
        .header(header::HOST, authority)
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let answer = async move {
        let answer = sender.send_request(request).await.map_err(told)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
        Ok((status, body.map_err(|e| e.to_string())?.to_bytes()))
    };
    tokio::select! {
        answer = answer => answer,
        Err(error) = connection => Err(told(error)),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands where a closure takes the error"
)]
fn told(error: hyper::Error) -> String {
    error.to_string()
}

/// What the answer says of itself.
fn state(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(answer.get("status")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{authority, own};

    #[test]
    fn an_address_for_everybody_is_asked_on_this_machine() {
        for (listens, asked) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:9", "[::1]:9"),
            ("10.0.0.7:80", "10.0.0.7:80"),
        ] {
            assert_eq!(own(listens.parse().unwrap()).to_string(), asked);
        }
    }

    #[test]
    fn a_url_names_a_server() {
        let read = |text: &str| authority(&text.parse().unwrap()).ok();
        assert_eq!(read("http://ibex").as_deref(), Some("ibex:80"));
        assert_eq!(read("http://[::1]:8080/").as_deref(), Some("[::1]:8080"));
        for wrong in ["https://ibex", "ibex:8080", "/health"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
