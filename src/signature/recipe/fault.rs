//! Why a request is not verified, or not signed.

gateway_names::faults! {
    /// Why a request is not verified, or not signed. Contains no value from the request.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum Fault {
        /// A part of the signature is missing.
        Incomplete(String) = SignatureIncomplete
            "the request is signed, but `{0}` is empty or missing",
        /// There are two values where one is allowed.
        Ambiguous(String) = SignatureAmbiguous "the request has more than one value in `{0}`",
        /// The value in a place does not have the form of this signature.
        Malformed(String) = SignatureMalformed "`{0}` does not have the form of this signature",
        /// A part is not the phantom of this credential.
        Foreign(String) = ForeignCredential "the `{0}` of the signature is another credential's",
        /// The signature is not one of this request with the phantom.
        Mismatch = SignatureMismatch "the signature does not verify with the phantom key",
        /// A value is not one that the recipe allows.
        Forbidden(String) = SignatureScope "the `{0}` of the signature is not an allowed one",
        /// The signature covers the content, which was not buffered.
        Content = SignatureContent "this signature covers the content, which is not at hand",
        /// The credential has no such part.
        Part(String) = SigningKey "the credential has no `{0}`",
        /// A part is not a key in the form that the recipe describes.
        Key(String) = SigningKey "the `{0}` of the credential is not in the form of such a key",
        /// A text in the request is not in the form that the recipe decodes.
        Undecodable = SignatureMalformed "a text of the request cannot be decoded for signing",
        /// A place cannot take its value in this request.
        Unfit(String) = SigningUnfit "`{0}` cannot take its value in this request",
        /// The request target cannot take the signature.
        Target = SigningUnfit "the request target cannot take the signature",
        /// The time cannot be written in this form.
        Time = SigningUnfit "the time cannot be written in the form of this signature",
    }
}
