//! Turns the credentials of a configuration into bindings to origins and places.

use std::sync::Arc;

use gateway_credential::ConfiguredCredential;
use gateway_message::Place;
use gateway_names::CredentialName;
use gateway_session::phantom::Shape;
use gateway_session::{self as session, Binding, Foreign, Role, Signing, SigningPart, When};

use super::credential::Credential;
use super::diagnostic::{Hint, remedy};
use super::login::ConfiguredLogin;
use super::signing::{PartSource, SigningCredential};

impl Credential {
    /// Returns its bindings, each with the reference of its secret. The preset supplies defaults.
    ///
    /// A signing credential has one binding per part. The first part is the one that is lent.
    ///
    /// # Errors
    /// Returns a [`Hint`] if the phantom's shape is invalid or a part's name is too long.
    pub fn stored(&self) -> Result<Vec<ConfiguredCredential>, Hint> {
        match &self.signing {
            Some(signing) => self.signing_bindings(signing),
            None => Ok(vec![ConfiguredCredential {
                binding: self.place_binding()?,
                from: self.from.clone().allowing_short(self.allow_short),
            }]),
        }
    }

    fn place_binding(&self) -> Result<Binding, Hint> {
        let preset = self.known();
        let shape = self.shape.as_deref().map(Shape::parse).transpose();
        let shape = shape.map_err(remedy("write for example `ghp_[36 alnum]`"))?;
        let cookies = preset.map_or(&[][..], |preset| &preset.cookies);
        let batches = preset.map(|preset| preset.batches.clone());
        Ok(Binding {
            shape,
            origins: match preset {
                Some(preset) if self.origins.is_empty() => preset.origins.clone(),
                _ => self.origins.clone(),
            },
            places: self.places_or_common(),
            takes: match (&self.takes, preset) {
                (Some(takes), _) => takes.clone(),
                (None, Some(preset)) => preset.takes.clone(),
                (None, None) => Vec::new(),
            },
            cookies: [cookies, &self.cookies].concat(),
            batches: batches.unwrap_or_default(),
            basic_user: preset.and_then(|preset| preset.basic_user.clone()),
            ..self.binding(self.name.clone())
        })
    }

    fn signing_bindings(
        &self,
        signing: &SigningCredential,
    ) -> Result<Vec<ConfiguredCredential>, Hint> {
        let mut parts = Vec::new();
        for (at, PartSource { part, .. }) in signing.parts.iter().enumerate() {
            parts.push(SigningPart {
                name: part.name.clone(),
                credential: match at {
                    0 => self.name.clone(),
                    _ => self.name_of(&part.name)?,
                },
                optional: part.optional,
            });
        }
        let signs = Arc::new(Signing {
            signer: signing.signer.clone(),
            parts,
        });
        let bind = |(at, PartSource { part, from }): (usize, &PartSource)| {
            let (places, role) = match at {
                0 => (
                    vec![Place::Signature(signing.signer.name().to_owned())],
                    Role::Signs(signs.clone()),
                ),
                _ => (Vec::new(), Role::Part(signs.clone())),
            };
            let from = from.clone().allowing_short(self.allow_short);
            ConfiguredCredential {
                binding: Binding {
                    origins: self.own_origins(),
                    places,
                    when: When::Phantom,
                    foreign: Foreign::Refuse,
                    variables: part.variable.iter().cloned().collect(),
                    role,
                    ..self.binding(signs.parts[at].credential.clone())
                },
                from: match part.private_key {
                    Some(algorithm) => from.to_private_key(algorithm),
                    None => from,
                },
            }
        };
        Ok(signing.parts.iter().enumerate().map(bind).collect())
    }

    /// Returns the name of a part's binding.
    fn name_of(&self, part: &str) -> Result<CredentialName, Hint> {
        CredentialName::new(&format!("{}.{part}", self.name))
            .map_err(remedy("give it a shorter name"))
    }

    /// Returns the binding that its own keys describe, without its preset.
    fn binding(&self, credential: CredentialName) -> Binding {
        Binding {
            methods: self.methods.clone(),
            paths: self.path.iter().cloned().collect(),
            when: self.when,
            foreign: self.foreign,
            takes: self.takes.clone().unwrap_or_default(),
            cookies: self.cookies.clone(),
            variables: self.env.clone(),
            ..Binding::of(credential)
        }
    }
}

/// Returns why bindings of credentials and of logins would be refused, each with its index in the
/// two lists together. Credentials that already lack their origins are left out.
pub(super) fn mistakes(
    credentials: &[Credential],
    logins: &[ConfiguredLogin],
) -> Vec<(usize, String, Hint)> {
    let mut found = Vec::new();
    let mut bindings = Vec::new();
    let mut owners = Vec::new();
    let own = credentials.iter().map(|one| (&one.name, one.stored()));
    let logins = logins.iter().map(|one| (&one.login.name, Ok(one.stored())));
    let (names, all): (Vec<_>, Vec<_>) = own.chain(logins).unzip();
    let what = |index: usize| format!("the credential `{}` is refused", names[index]);
    for (index, stored) in all.into_iter().enumerate() {
        match stored {
            Ok(stored) => {
                let bound = stored.into_iter().map(|stored| stored.binding);
                bindings.extend(bound.filter(|one| !one.origins.is_empty()));
                owners.resize(bindings.len(), index);
            }
            Err(hint) => found.push((index, what(index), hint)),
        }
    }
    for (at, mistake) in session::mistakes(&bindings) {
        let hint = Hint::new(mistake.to_string(), mistake.remedy());
        found.push((owners[at], what(owners[at]), hint));
    }
    found
}

#[cfg(test)]
mod tests {
    use gateway_credential::SecretRef;
    use gateway_credential::preset;

    use super::*;

    #[test]
    fn what_a_credential_takes_is_its_own_word_or_its_presets() {
        let name = CredentialName::new("GITLAB_TOKEN").unwrap();
        let preset = preset::named("gitlab").unwrap();
        let mut credential = Credential::named(name, SecretRef::env("GITLAB_TOKEN"));
        let bound = |credential: &Credential| credential.stored().unwrap().remove(0).binding;
        credential.preset = Some("gitlab".to_owned());
        assert_eq!(bound(&credential).takes, preset.credentials[0].takes);
        credential.takes = Some(vec!["query:ticket".parse().unwrap()]);
        credential.cookies = vec!["lang".to_owned()];
        assert_eq!(Some(bound(&credential).takes), credential.takes);
        assert_eq!(bound(&credential).cookies, ["lang"]);
        credential.takes = Some(Vec::new());
        assert!(bound(&credential).takes.is_empty());
    }
}
