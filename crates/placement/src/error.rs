//! What a caller can get wrong.

/// A parameter that breaks its rule. Nothing was changed; correct the parameter and call again.
///
/// `parameter` is the name the command line uses without its dashes, so that the message can be acted on as it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{parameter}: {rule}, not {value}")]
pub struct ParameterError {
    /// Name of the parameter, for example `alpha`.
    pub parameter: &'static str,
    /// What holds for every allowed value, for example `must be at least 0`.
    pub rule: String,
    /// The offending value.
    pub value: String,
}

impl ParameterError {
    pub(crate) fn new(
        parameter: &'static str,
        rule: impl Into<String>,
        value: impl ToString,
    ) -> Self {
        Self {
            parameter,
            rule: rule.into(),
            value: value.to_string(),
        }
    }
}

/// Refuses a count below `minimum`.
pub(crate) fn at_least(
    parameter: &'static str,
    value: usize,
    minimum: usize,
) -> Result<(), ParameterError> {
    if value < minimum {
        return Err(ParameterError::new(
            parameter,
            format!("must be at least {minimum}"),
            value,
        ));
    }
    Ok(())
}

/// Refuses a rate that is no finite number of at least 0.
pub(crate) fn check_rate(parameter: &'static str, rate: f64) -> Result<(), ParameterError> {
    if !(rate.is_finite() && rate >= 0.0) {
        return Err(ParameterError::new(
            parameter,
            "must be a number of messages per second, at least 0",
            rate,
        ));
    }
    Ok(())
}
