//! What stands between a replica and its Redis, and loses an answer when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Passes bytes on in both directions.
pub(super) struct Proxy {
    url: String,
    lose: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl Proxy {
    /// One before the Redis at `url`.
    pub(super) async fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut own = url::Url::parse(url).unwrap();
        let to = (own.host_str().unwrap().to_owned(), own.port().unwrap());
        own.set_host(Some("127.0.0.1")).unwrap();
        own.set_port(Some(port)).unwrap();
        let (lose, lost) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counters = (Arc::clone(&lose), Arc::clone(&lost));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect((to.0.as_str(), to.1)).await.unwrap();
                tokio::spawn(pass(client, server, counters.clone()));
            }
        });
        Self {
            url: own.into(),
            lose,
            lost,
        }
    }

    /// Where it is.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The next `times` that the server answers, the answer is lost and the connection broken.
    pub(super) fn lose(&self, times: usize) {
        self.lose.store(times, Ordering::SeqCst);
    }

    /// How many answers were lost so far.
    pub(super) fn lost(&self) -> usize {
        self.lost.load(Ordering::SeqCst)
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    (lose, lost): (Arc<AtomicUsize>, Arc<AtomicUsize>),
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asking = tokio::spawn(async move {
        tokio::io::copy(&mut from_client, &mut to_server).await.ok();
    });
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
        let less = |left: usize| left.checked_sub(1);
        let loses = lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if loses.is_ok() {
            lost.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if to_client.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
    asking.abort();
}
