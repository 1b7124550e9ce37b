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

/// Most topics or clients: more fit in no memory.
const MAX_COUNT: usize = 10_000_000;

/// Refuses a count below 1, or one above what memory can hold.
pub(crate) fn count(parameter: &'static str, value: usize) -> Result<(), ParameterError> {
    at_least(parameter, value, 1)?;
    if value > MAX_COUNT {
        let rule = format!("must be at most {MAX_COUNT}");
        return Err(ParameterError::new(parameter, rule, value));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_both_bounds() {
        assert!(count("topics", 1).is_ok() && count("topics", MAX_COUNT).is_ok());
        for (value, expected) in [(0, "at least 1"), (99_999_999_999, "at most 10000000")] {
            let error = count("topics", value).unwrap_err().to_string();
            assert!(
                error.contains("topics") && error.contains(expected),
                "{error}"
            );
        }
    }
}
