//! Checks the query of a request.

use gateway_message::{
    AcceptedPart, Place, folded_parameter, folded_parameters, is_credential_parameter,
};

use super::Search;
use crate::detected::Location;
use crate::refusal::{CredentialRefusal, RequestPart};

impl Search<'_> {
    pub(super) fn query(&mut self) -> Result<(), CredentialRefusal> {
        let target = self.target;
        let lent = if !self.bound.is_empty() && target.query().is_some() {
            self.lent_in_query()?
        } else {
            Vec::new()
        };
        if lent.is_empty() {
            return target.query().map_or(Ok(()), |query| {
                self.clean(query.as_bytes(), RequestPart::Query)
            });
        }
        for (at, (name, value)) in target.query_pairs().enumerate() {
            self.clean(name.as_bytes(), RequestPart::Query)?;
            if lent.binary_search(&at).is_err() {
                self.clean(value.as_bytes(), RequestPart::Query)?;
            }
        }
        Ok(())
    }

    /// Accepts phantoms in query places. Returns the indices of those parameters.
    fn lent_in_query(&mut self) -> Result<Vec<usize>, CredentialRefusal> {
        let mut lent = Vec::new();
        for (at, (name, value)) in self.target.query_pairs().enumerate() {
            if self.signature_has(|signed| signed.has_parameter(&name)) {
                lent.push(at);
                continue;
            }
            if self.signature_has(|signed| signed.is_signature_parameter(&name)) {
                continue;
            }
            let folded = folded_parameters(&name);
            let mut credential_name = folded.iter().any(|name| self.is_credential_parameter(name));
            let mut presented = None;
            for bound in self.bound {
                for (index, place) in bound.binding.places.iter().enumerate() {
                    let Place::Query(parameter) = place else {
                        continue;
                    };
                    credential_name |= folded.contains(&folded_parameter(parameter));
                    if *parameter == name {
                        presented = presented.or(self
                            .is_phantom(bound, value.as_bytes())
                            .map(|phantom| (bound, index, phantom)));
                    }
                }
            }
            if let Some((bound, index, phantom)) = presented {
                self.lend(
                    bound,
                    index,
                    Location::Query(at),
                    phantom,
                    RequestPart::Query,
                )?;
                lent.push(at);
            } else if credential_name && !value.is_empty() {
                self.clean(value.as_bytes(), RequestPart::Query)?;
                self.foreign(value.as_bytes(), RequestPart::Query, None)?;
            }
        }
        Ok(lent)
    }

    /// Whether a parameter with this folded name holds a credential: by its usual meaning, or
    /// because an origin's binding lists it.
    fn is_credential_parameter(&self, folded: &str) -> bool {
        // Google's own name for an API key, used by all of its services (Cloud APIs, "System
        // parameters").
        let google = || {
            folded == "key"
                && self
                    .head
                    .origin
                    .authority
                    .host
                    .as_str()
                    .ends_with(".googleapis.com")
        };
        let told = self
            .bound
            .iter()
            .any(|bound| !bound.binding.takes.is_empty());
        is_credential_parameter(folded, !told)
            || google()
            || self
                .takes()
                .any(|taken| matches!(&taken.part, AcceptedPart::Query(name) if name == folded))
    }
}
