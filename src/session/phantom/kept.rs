//! The shapes of a session's phantoms, as its record keeps them.

use std::collections::BTreeMap;

use gateway_names::CredentialName;

use super::shape::{Shape, ShapeMalformed};

/// The shapes by which a session's phantoms are made again, by credential.
///
/// A phantom keeps its shape when its secret is renewed with another length, so what a workload
/// holds stays valid.
#[derive(Debug, Clone, Default)]
pub struct KeptShapes {
    known: BTreeMap<CredentialName, Shape>,
    changed: Vec<ChangedShape>,
}

/// A shape that the record does not have yet.
#[derive(Debug, Clone)]
pub struct ChangedShape {
    /// The credential.
    pub credential: CredentialName,
    /// What the record has.
    pub before: Option<String>,
    /// What it is to have.
    pub after: String,
}

impl KeptShapes {
    /// Reads the shapes of a record.
    ///
    /// # Errors
    /// [`ShapeMalformed::Kept`] if a name or a shape cannot be read.
    pub fn read<'r>(
        record: impl IntoIterator<Item = (&'r String, &'r String)>,
    ) -> Result<Self, ShapeMalformed> {
        let one = |(name, text): (&String, &String)| {
            let name = CredentialName::new(name).map_err(|_| ShapeMalformed::Kept)?;
            Ok((name, Shape::from_text(text)?))
        };
        Ok(Self {
            known: record.into_iter().map(one).collect::<Result<_, _>>()?,
            changed: Vec::new(),
        })
    }

    /// The kept shape of a credential.
    pub fn of(&self, credential: &CredentialName) -> Option<&Shape> {
        self.known.get(credential)
    }

    /// Every kept shape.
    pub fn all(&self) -> impl Iterator<Item = (&CredentialName, &Shape)> {
        self.known.iter()
    }

    /// Keeps the shape with which a phantom was made.
    pub fn keep(&mut self, credential: &CredentialName, shape: Shape) {
        let after = shape.to_text();
        let before = self.known.insert(credential.clone(), shape);
        let before = before.map(|shape| shape.to_text());
        if before.as_ref() != Some(&after) {
            self.changed.push(ChangedShape {
                credential: credential.clone(),
                before,
                after,
            });
        }
    }

    /// What the record does not have yet.
    pub fn changed(&self) -> &[ChangedShape] {
        &self.changed
    }
}
