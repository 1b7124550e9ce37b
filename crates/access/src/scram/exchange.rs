//! Both sides of the exchange: the client proves that it has the password, and the server that it has the credential.
//!
//! Nonces are passed in. Names and passwords are used as bytes: SASLprep is not applied.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

use super::credential::{
    Credential, Key, LEAST_ITERATIONS, MOST_ITERATIONS, is_same, mac, salted_password, xor,
};
use crate::users::Users;

/// Longest message of the exchange that is parsed.
const MOST_BYTES: usize = 4096;

/// Why an exchange failed. It is over; the answer is Not authorized, or a protocol error for malformed messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// Malformed: not a message of the exchange, or one that asks for what is not supported (channel binding, another's rights).
    #[error("not a message of SCRAM-SHA-256 without channel binding")]
    Malformed,
    /// Refused: the client has not proved that it has the password, or there is no such user.
    #[error("wrong user name or password")]
    Refused,
    /// Protocol: the server has not proved that it has the password either.
    #[error("the server does not know the password")]
    Impostor,
}

/// The server's side, between its challenge and the client's proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerExchange {
    user_name: String,
    credential: Credential,
    is_known: bool,
    /// Base64 of the header of the client's first message.
    binding: String,
    nonce: String,
    /// The messages so far, as the proof covers them.
    messages: String,
}

impl ServerExchange {
    /// Handles the client's first message. Returns the exchange and the answer. `nonce`: printable, without comma, fresh and random.
    ///
    /// # Errors
    /// The message is malformed, or asks for channel binding or for another's rights.
    pub fn start(
        users: &Users,
        client_first: &[u8],
        nonce: &str,
    ) -> Result<(Self, Vec<u8>), ScramError> {
        let text = text_of(client_first)?;
        // `n`: no channel binding; `y`: the client could, but we do not offer it.
        let bare = text
            .strip_prefix("n,,")
            .or_else(|| text.strip_prefix("y,,"))
            .ok_or(ScramError::Malformed)?;
        let mut attributes = bare.split(',');
        let user_name = attribute(attributes.next(), "n=").and_then(unescape)?;
        let client_nonce = attribute(attributes.next(), "r=")?;
        if user_name.is_empty() || client_nonce.is_empty() {
            return Err(ScramError::Malformed);
        }
        let (credential, is_known) = users.scram(&user_name);
        let nonce = format!("{client_nonce}{nonce}");
        let salt = BASE64.encode(&credential.salt);
        let answer = format!("r={nonce},s={salt},i={}", credential.iterations);
        let exchange = Self {
            user_name,
            credential,
            is_known,
            binding: BASE64.encode(&text[..3]),
            nonce,
            messages: format!("{bare},{answer}"),
        };
        Ok((exchange, answer.into_bytes()))
    }

    /// Handles the client's proof. Returns the user, and the proof that we have the password as well.
    ///
    /// # Errors
    /// The message is malformed, the password wrong or the user unknown.
    pub fn finish(self, client_final: &[u8]) -> Result<(String, Vec<u8>), ScramError> {
        let text = text_of(client_final)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let mut attributes = without_proof.split(',');
        let binding = attribute(attributes.next(), "c=")?;
        let nonce = attribute(attributes.next(), "r=")?;
        if binding != self.binding || nonce != self.nonce {
            return Err(ScramError::Malformed);
        }
        let proof = BASE64
            .decode(proof)
            .ok()
            .and_then(|proof| Key::try_from(proof).ok())
            .ok_or(ScramError::Malformed)?;
        let messages = format!("{},{without_proof}", self.messages);
        let signature = mac(&self.credential.stored_key, messages.as_bytes());
        let stored: Key = Sha256::digest(xor(&proof, &signature)).into();
        if !is_same(&stored, &self.credential.stored_key) || !self.is_known {
            return Err(ScramError::Refused);
        }
        let server_signature = mac(&self.credential.server_key, messages.as_bytes());
        let answer = format!("v={}", BASE64.encode(server_signature));
        Ok((self.user_name, answer.into_bytes()))
    }
}

/// The client's side.
#[derive(Debug, Clone)]
pub struct ClientExchange {
    password: Vec<u8>,
    nonce: String,
    first_bare: String,
    server_signature: Option<Key>,
}

impl ClientExchange {
    /// `nonce`: printable, without comma, fresh and random.
    #[must_use]
    pub fn new(user_name: &str, password: &[u8], nonce: &str) -> Self {
        let name = user_name.replace('=', "=3D").replace(',', "=2C");
        Self {
            password: password.to_vec(),
            nonce: nonce.to_owned(),
            first_bare: format!("n={name},r={nonce}"),
            server_signature: None,
        }
    }

    /// The first message.
    #[must_use]
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare).into_bytes()
    }

    /// Handles the server's challenge. Returns the proof to be sent. As slow as the server's iterations.
    ///
    /// # Errors
    /// The challenge is malformed, or not an answer to our first message.
    pub fn respond(&mut self, server_first: &[u8]) -> Result<Vec<u8>, ScramError> {
        let text = text_of(server_first)?;
        let mut attributes = text.split(',');
        let nonce = attribute(attributes.next(), "r=")?;
        let salt = BASE64
            .decode(attribute(attributes.next(), "s=")?)
            .map_err(|_| ScramError::Malformed)?;
        let iterations: u32 = attribute(attributes.next(), "i=")?
            .parse()
            .map_err(|_| ScramError::Malformed)?;
        if !nonce.starts_with(&self.nonce)
            || nonce.len() == self.nonce.len()
            || !(LEAST_ITERATIONS..=MOST_ITERATIONS).contains(&iterations)
        {
            return Err(ScramError::Malformed);
        }
        let without_proof = format!("c=biws,r={nonce}");
        let messages = format!("{},{text},{without_proof}", self.first_bare);
        let salted = salted_password(&self.password, &salt, iterations);
        let client_key = mac(&salted, b"Client Key");
        let stored_key: Key = Sha256::digest(client_key).into();
        let proof = xor(&client_key, &mac(&stored_key, messages.as_bytes()));
        let server_key = mac(&salted, b"Server Key");
        self.server_signature = Some(mac(&server_key, messages.as_bytes()));
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes())
    }

    /// Handles the server's last message.
    ///
    /// # Errors
    /// The server does not have the password, or this comes before its challenge.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), ScramError> {
        let signature = text_of(server_final)?
            .strip_prefix("v=")
            .and_then(|text| BASE64.decode(text).ok())
            .and_then(|bytes| Key::try_from(bytes).ok())
            .ok_or(ScramError::Impostor)?;
        match &self.server_signature {
            Some(expected) if is_same(expected, &signature) => Ok(()),
            Some(_) | None => Err(ScramError::Impostor),
        }
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, ScramError> {
    if bytes.len() > MOST_BYTES {
        return Err(ScramError::Malformed);
    }
    std::str::from_utf8(bytes).map_err(|_| ScramError::Malformed)
}

fn attribute<'a>(text: Option<&'a str>, name: &str) -> Result<&'a str, ScramError> {
    text.and_then(|text| text.strip_prefix(name))
        .ok_or(ScramError::Malformed)
}

/// `=2C` and `=3D` stand for comma and equals sign; no other equals sign may stand in a name (RFC 5802, 5.1).
fn unescape(name: &str) -> Result<String, ScramError> {
    let plain = name.replace("=2C", ",").replace("=3D", "=");
    let escapes = name.matches("=2C").count() + name.matches("=3D").count();
    if name.matches('=').count() == escapes {
        Ok(plain)
    } else {
        Err(ScramError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, 3.
    const USER: &str = "user";
    const PASSWORD: &[u8] = b"pencil";
    const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn users() -> Users {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let credential = Credential::new(PASSWORD, &salt, 4096);
        Users::parse(&format!("{USER}:{credential}\na,b=c:{credential}")).expect("a good file")
    }

    #[test]
    fn the_example_of_rfc_7677_is_played_to_the_byte() {
        let mut client = ClientExchange::new(USER, PASSWORD, CLIENT_NONCE);
        assert_eq!(client.first(), CLIENT_FIRST.as_bytes());
        let (server, challenge) =
            ServerExchange::start(&users(), CLIENT_FIRST.as_bytes(), SERVER_NONCE).expect("good");
        assert_eq!(String::from_utf8(challenge).expect("text"), SERVER_FIRST);
        let proof = client.respond(SERVER_FIRST.as_bytes()).expect("good");
        assert_eq!(String::from_utf8(proof).expect("text"), CLIENT_FINAL);
        let (name, answer) = server.finish(CLIENT_FINAL.as_bytes()).expect("proved");
        assert_eq!(name, USER);
        assert_eq!(String::from_utf8(answer).expect("text"), SERVER_FINAL);
        assert_eq!(client.verify(SERVER_FINAL.as_bytes()), Ok(()));
        assert_eq!(client.verify(b"v=AAAA"), Err(ScramError::Impostor));
    }

    fn play(user_name: &str, password: &[u8]) -> Result<String, ScramError> {
        let mut client = ClientExchange::new(user_name, password, "cccc");
        let (server, challenge) = ServerExchange::start(&users(), &client.first(), "ssss")?;
        let proof = client.respond(&challenge)?;
        let (name, answer) = server.finish(&proof)?;
        client.verify(&answer).map(|()| name)
    }

    #[test]
    fn only_the_right_password_of_a_known_user_proves_anything() {
        assert_eq!(play(USER, PASSWORD), Ok(USER.to_owned()));
        assert_eq!(play("a,b=c", PASSWORD), Ok("a,b=c".to_owned()));
        assert_eq!(play(USER, b"pencils"), Err(ScramError::Refused));
        assert_eq!(play("eve", PASSWORD), Err(ScramError::Refused));
        // What an unknown user is asked looks the same each time.
        let ask = || {
            ServerExchange::start(&users(), b"n,,n=eve,r=x", "s")
                .expect("good")
                .1
        };
        assert_eq!(ask(), ask());
    }

    #[test]
    fn messages_that_are_none_are_refused() {
        let firsts: [&[u8]; 8] = [
            b"",
            b"n,,",
            b"p=tls-unique,,n=user,r=x",
            b"n,a=admin,n=user,r=x",
            b"n,,n=,r=x",
            b"n,,n=us=er,r=x",
            b"n,,m=x,n=user,r=x",
            b"n,,n=user,r=\xff",
        ];
        for first in firsts {
            let result = ServerExchange::start(&users(), first, "s").map(|_| ());
            assert_eq!(result, Err(ScramError::Malformed), "{first:?}");
        }
        let finals = [
            "",
            "c=biws,r=x",
            "c=biws,r=wrong,p=AAAA",
            "c=eSws,r=xs,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "c=biws,r=xs,p=AAAA",
        ];
        for last in finals {
            let (server, _) = ServerExchange::start(&users(), b"n,,n=user,r=x", "s").expect("good");
            let result = server.finish(last.as_bytes());
            assert_eq!(result, Err(ScramError::Malformed), "{last:?}");
        }
    }
}
