//! The shapes of a session's phantoms, as stored in its record.

use std::collections::BTreeMap;

use gateway_names::CredentialName;

use super::shape::{Shape, ShapeMalformed};

/// The shapes from which a session's phantoms are derived again, by credential.
///
/// A phantom keeps its shape when its secret is renewed with another length, so that the phantom in
/// the workload stays valid.
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
    /// The shape in the record.
    pub before: Option<String>,
    /// The new shape.
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

    /// Returns the kept shape of a credential.
    pub fn of(&self, credential: &CredentialName) -> Option<&Shape> {
        self.known.get(credential)
    }

    /// Returns every kept shape.
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

    /// Returns the shapes that the record does not have yet.
    pub fn changed(&self) -> &[ChangedShape] {
        &self.changed
    }
}
