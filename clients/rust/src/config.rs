use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;

use crate::consumer::{Delivery, Verdict};
use crate::errors::Error;
use crate::message::Credential;
use crate::plan::SendOutcome;

pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Called as things happen, by the thread concerned: return soon.
pub trait Metrics: Send + Sync {
    /// One attempt at one proxy has ended. `failure` is none for an answer, whatever its code.
    fn call(&self, _method: &str, _endpoint: &str, _took: Duration, _failure: Option<&str>) {}
    /// The final outcome of one message, after all retries.
    fn sent(&self, _outcome: &SendOutcome) {}
    /// A handler of a run has ended.
    fn handled(&self, _delivery: &Delivery, _verdict: Verdict, _took: Duration) {}
}

struct NoMetrics;
impl Metrics for NoMetrics {}

/// Addresses, credential and options of a producer or consumer.
#[derive(Clone)]
pub struct Config {
    /// "host:port,host:port"; IPv6 as "[::1]:9700".
    pub endpoints: String,
    pub app: String,
    pub key_id: String,
    pub secret: String,
    /// For one send with all its retries; a pull or a request adds it to its wait. A call may take 500 ms more for an
    /// answer. Default 10 s.
    pub deadline: Duration,
    /// For one attempt at one proxy; shorter finds a hung proxy sooner, and retries more. Default 3 s.
    pub call_timeout: Duration,
    /// For a new connection with its TLS handshake; less when the deadline comes before. Default 1 s.
    pub connect_timeout: Duration,
    /// Buffered transport instead of framed. Penstock takes both on one port.
    pub buffered: bool,
    /// TLS that verifies the certificate and the host name. None: plain TCP, the default.
    pub tls: Option<openssl::ssl::SslConnector>,
    /// Default 50 ms: doubled with each failure, with jitter.
    pub backoff_first: Duration,
    /// Default 2 s.
    pub backoff_max: Duration,
    /// One minted credential is used this long; proxies take it for 300 s. Default 60 s.
    pub credential_use: Duration,
    /// Kept open per proxy; more are made when needed and closed after use. Default 8.
    pub idle_connections_max: usize,
    /// An older idle connection may have been closed by the proxy. Default 30 s.
    pub idle_max: Duration,
    /// `run` ends when no pull has succeeded for so long; zero: never. Default 10 min.
    pub outage_max: Duration,
    /// `run` extends no lease beyond this; a handler that hangs loses its message then. Default 1 h.
    pub extend_max: Duration,
    /// Called with outages and topics that give nothing, one sentence each. Default: standard error.
    pub tell: Tell,
    pub metrics: Arc<dyn Metrics>,
}

impl Config {
    pub fn new(endpoints: &str, app: &str, key_id: &str, secret: &str) -> Config {
        let s = Duration::from_secs;
        Config {
            endpoints: endpoints.into(),
            app: app.into(),
            key_id: key_id.into(),
            secret: secret.into(),
            deadline: s(10),
            call_timeout: s(3),
            connect_timeout: s(1),
            buffered: false,
            tls: None,
            backoff_first: Duration::from_millis(50),
            backoff_max: s(2),
            credential_use: s(60),
            idle_connections_max: 8,
            idle_max: s(30),
            outage_max: s(600),
            extend_max: s(3_600),
            tell: Arc::new(|sentence| eprintln!("penstock: {sentence}")),
            metrics: Arc::new(NoMetrics),
        }
    }

    /// TLS that trusts the certificate authorities in a PEM file.
    pub fn tls_trusting(mut self, pem: &str) -> Result<Config, Error> {
        let invalid = |error: openssl::error::ErrorStack| Error::Invalid(format!("{pem}: {error}"));
        let mut builder =
            openssl::ssl::SslConnector::builder(openssl::ssl::SslMethod::tls_client()).map_err(invalid)?;
        builder.set_ca_file(pem).map_err(invalid)?;
        self.tls = Some(builder.build());
        Ok(self)
    }
}

/// Mints the credential and keeps it for a while, as the proxies cache their verdict by its bytes.
pub(crate) struct CredentialMint {
    config: Config,
    minted: Mutex<Option<Credential>>,
}

impl CredentialMint {
    pub fn new(config: &Config) -> Result<CredentialMint, Error> {
        if config.app.is_empty() || config.key_id.is_empty() || config.secret.is_empty() {
            let rule = "credential: incomplete: use the application, its key id and its secret";
            return Err(Error::Invalid(rule.into()));
        }
        Ok(CredentialMint { config: config.clone(), minted: Mutex::new(None) })
    }

    pub fn credential(&self) -> Credential {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let mut minted = self.minted.lock().unwrap();
        let use_ms = self.config.credential_use.as_millis() as i64;
        match minted.as_ref().filter(|last| (0..use_ms).contains(&(now_ms - last.issued_at_ms))) {
            Some(last) => last.clone(),
            None => minted.insert(self.mint(now_ms)).clone(),
        }
    }

    fn mint(&self, now_ms: i64) -> Credential {
        let Config { app, key_id, secret, .. } = &self.config;
        let signature = sign(secret, &format!("penstock/1\n{app}\n{key_id}\n{now_ms}"));
        let signature = signature.expect("this OpenSSL has HMAC-SHA256");
        Credential { app: app.clone(), key_id: key_id.clone(), issued_at_ms: now_ms, signature }
    }
}

fn sign(secret: &str, text: &str) -> Result<Vec<u8>, openssl::error::ErrorStack> {
    Signer::new(MessageDigest::sha256(), &*PKey::hmac(secret.as_bytes())?)?.sign_oneshot_to_vec(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_signed_as_the_contract_says_and_used_again() {
        let mint = CredentialMint::new(&Config::new("h:1", "shop", "k1", "secret")).unwrap();
        let made = mint.mint(1_700_000_000_000);
        let hex: String = made.signature.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "69ad974a695467c9b480ce88427f99b5c8807394cac33124f8fa772cdf9d5d10");
        assert_eq!(mint.credential(), mint.credential());
    }

    #[test]
    fn an_incomplete_credential_is_refused_at_once() {
        assert!(CredentialMint::new(&Config::new("h:1", "shop", "", "secret")).is_err());
    }
}
