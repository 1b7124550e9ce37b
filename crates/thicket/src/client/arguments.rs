//! Arguments that both commands have: where to connect, and as whom.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use thicket_access::scram::ClientExchange;
use thicket_mqtt::{ProtocolVersion, Qos};
use thicket_session::client::{CleanStart, ClientConfig, WillConfig};

use super::target::Where;

/// What to do with a Server Reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Redirect {
    /// Connect to that server
    Follow,
    /// Report it as an error
    Ignore,
}

/// Where to connect, and as whom.
#[derive(Debug, clap::Args)]
pub struct Connect {
    #[command(flatten)]
    pub place: Where,
    /// Client identifier [default: the broker chooses one]
    #[arg(short, long, value_name = "CLIENT_ID")]
    id: Option<String>,
    /// User name
    #[arg(short, long, value_name = "NAME", allow_hyphen_values = true)]
    username: Option<String>,
    /// Password
    #[arg(
        short = 'P',
        long = "pw",
        value_name = "PASSWORD",
        requires = "username",
        allow_hyphen_values = true,
        group = "secret"
    )]
    password: Option<String>,
    /// File with the password: unlike an argument, it is not visible in the process list
    #[arg(long, value_name = "FILE", requires = "username", group = "secret")]
    pw_file: Option<PathBuf>,
    /// Authenticate with SCRAM-SHA-256: the password is not sent, and the broker must authenticate itself too (MQTT 5)
    #[arg(long, requires = "secret")]
    scram: bool,
    /// Version of MQTT: 3.1, 3.1.1 or 5
    #[arg(short = 'V', long, default_value = "5", value_parser = version)]
    protocol_version: ProtocolVersion,
    /// Keep Alive in seconds; 0: off
    #[arg(short, long, value_name = "SECONDS", default_value_t = 60)]
    keepalive: u16,
    /// Use a persistent session: no Clean Start, and the session outlives the connection. Needs --id
    #[arg(short = 'c', long = "disable-clean-session", requires = "id")]
    keep_session: bool,
    /// How long the broker keeps the session after a disconnect (MQTT 5) [default: 0; with -c, forever]
    #[arg(short = 'x', long, value_name = "SECONDS")]
    session_expiry_interval: Option<u32>,
    /// What to do when the broker names another server (MQTT 5)
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Redirect::Follow)]
    pub redirect: Redirect,
    /// Topic of the will, a message that the broker publishes if the connection is lost
    #[arg(long, value_name = "TOPIC", help_heading = "Will")]
    will_topic: Option<String>,
    /// Payload of the will [default: empty]
    #[arg(
        long,
        value_name = "PAYLOAD",
        requires = "will_topic",
        allow_hyphen_values = true,
        help_heading = "Will"
    )]
    will_payload: Option<String>,
    /// QoS of the will
    #[arg(long, value_name = "QOS", default_value = "0", value_parser = qos, requires = "will_topic", help_heading = "Will")]
    will_qos: Qos,
    /// Retain the will
    #[arg(long, requires = "will_topic", help_heading = "Will")]
    will_retain: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Connect {
    /// What the client is to say in its CONNECT.
    pub fn config(&self) -> anyhow::Result<ClientConfig> {
        let is_v5 = self.protocol_version == ProtocolVersion::V5;
        ensure!(
            is_v5 || self.session_expiry_interval.is_none(),
            "-x: only version 5 has a session expiry; use -c"
        );
        ensure!(
            is_v5 || !self.scram,
            "--scram: only version 5 has enhanced authentication"
        );
        let mut config = ClientConfig::new(self.protocol_version, self.client_id());
        config.keep_alive = self.keepalive;
        if !self.scram {
            config.user_name.clone_from(&self.username);
            config.password = self.password()?;
        }
        config.session_expiry_interval = match (is_v5, self.session_expiry_interval) {
            (false, _) => 0,
            (true, Some(seconds)) => seconds,
            (true, None) if self.keep_session => u32::MAX,
            (true, None) => 0,
        };
        config.will = self.will_topic.clone().map(|topic| WillConfig {
            topic,
            payload: self.will_payload.clone().unwrap_or_default().into_bytes(),
            qos: self.will_qos,
            retain: self.will_retain,
            ..WillConfig::default()
        });
        Ok(config)
    }

    /// The proof that the password is known, if it is to be proved.
    pub fn exchange(&self) -> anyhow::Result<Option<ClientExchange>> {
        let (true, Some(name)) = (self.scram, &self.username) else {
            return Ok(None);
        };
        let Some(password) = self.password()? else {
            return Ok(None);
        };
        let mut bytes = [0; 18];
        getrandom::fill(&mut bytes).context("the system has no randomness")?;
        let nonce = STANDARD_NO_PAD.encode(bytes);
        Ok(Some(ClientExchange::new(name, &password, &nonce)))
    }

    /// As given, or the content of the file without a line end.
    fn password(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(path) = &self.pw_file else {
            return Ok(self.password.clone().map(String::into_bytes));
        };
        let text = std::fs::read(path)
            .with_context(|| format!("--pw-file: cannot read {}", path.display()))?;
        let line = text.strip_suffix(b"\n").unwrap_or(&text);
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
    }

    /// Whether to throw away what the broker has of this client.
    pub const fn clean_start(&self) -> CleanStart {
        if self.keep_session {
            CleanStart::No
        } else {
            CleanStart::Yes
        }
    }

    /// 3.1 wants one of 1 to 23 characters; later versions let the broker choose.
    fn client_id(&self) -> String {
        match (&self.id, self.protocol_version) {
            (Some(id), _) => id.clone(),
            (None, ProtocolVersion::V31) => format!("thicket-{}", std::process::id()),
            (None, ProtocolVersion::V311 | ProtocolVersion::V5) => String::new(),
        }
    }
}

fn version(text: &str) -> Result<ProtocolVersion, String> {
    match text.trim_start_matches("mqttv") {
        "3.1" | "31" => Ok(ProtocolVersion::V31),
        "3.1.1" | "311" => Ok(ProtocolVersion::V311),
        "5" | "5.0" => Ok(ProtocolVersion::V5),
        _ => Err("expected 3.1, 3.1.1 or 5".to_owned()),
    }
}

/// 0, 1 or 2.
pub fn qos(text: &str) -> Result<Qos, String> {
    match text {
        "0" => Ok(Qos::AtMostOnce),
        "1" => Ok(Qos::AtLeastOnce),
        "2" => Ok(Qos::ExactlyOnce),
        _ => Err("expected 0, 1 or 2".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        connect: Connect,
    }

    fn config(arguments: &[&str]) -> anyhow::Result<ClientConfig> {
        let line = Line::try_parse_from(std::iter::once("sub").chain(arguments.iter().copied()))?;
        line.connect.config()
    }

    #[test]
    fn a_kept_session_does_not_expire_unless_told_to() {
        let cases: [(&[&str], u32); 4] = [
            (&[], 0),
            (&["-c", "-i", "a"], u32::MAX),
            (&["-c", "-i", "a", "-x", "60"], 60),
            (&["-c", "-i", "a", "-V", "3.1.1"], 0),
        ];
        for (arguments, expected) in cases {
            assert_eq!(
                config(arguments)
                    .expect("good arguments")
                    .session_expiry_interval,
                expected,
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn a_password_can_be_in_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("password");
        std::fs::write(&file, "two words\r\n").expect("written");
        let file = file.to_str().expect("text");
        let read = config(&["-u", "ann", "--pw-file", file]).expect("good arguments");
        assert_eq!(read.password.as_deref(), Some(&b"two words"[..]));
        let scram = config(&["-u", "ann", "--pw-file", file, "--scram"]);
        assert_eq!(scram.expect("good arguments").password, None);
        let error = config(&["-u", "ann", "--pw-file", "/nowhere"]).expect_err("no file");
        assert!(
            error
                .to_string()
                .contains("--pw-file: cannot read /nowhere"),
            "{error}"
        );
    }

    #[test]
    fn arguments_that_make_no_sense_together_are_refused() {
        let cases: [(&[&str], &str); 6] = [
            (&["-c"], "--id"),
            (&["-V", "3.1.1", "-x", "5"], "only version 5"),
            (&["-P", "secret"], "--username"),
            (&["--pw-file", "f"], "--username"),
            (
                &["-u", "a", "-P", "b", "--pw-file", "f"],
                "cannot be used with",
            ),
            (&["-V", "4"], "expected 3.1, 3.1.1 or 5"),
        ];
        for (arguments, expected) in cases {
            let error = config(arguments).expect_err("bad arguments").to_string();
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
    }
}
