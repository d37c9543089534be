package jobs

// An APIFailure is how a model API failed a call.
type APIFailure struct {
	Status int    // of its answer; 0: there was none, or it is not known
	Kind   string // what the API, or an agent, calls the error; empty: nothing
}

// apiKinds sorts the words that providers and agents have for errors, where they
// say more than the status does.
var apiKinds = map[string]Reason{
	"authentication_error": Unauthorized, "authentication_failed": Unauthorized, "permission_error": Unauthorized,
	"invalid_api_key": Unauthorized, "API_KEY_INVALID": Unauthorized, "UNAUTHENTICATED": Unauthorized, "PERMISSION_DENIED": Unauthorized,
	"oauth_org_not_allowed": Unauthorized, "account_on_hold": Unauthorized, "verification_required": Unauthorized,
	"cloud_credential_error": Unauthorized, "account_deactivated": Unauthorized,

	"billing_error": Billing, "insufficient_quota": Billing, "billing_not_active": Billing, "billing_hard_limit_reached": Billing,
	"usage_limit_reached": Billing,

	"model_not_found": ModelNotFound, "not_found_error": ModelNotFound, "NOT_FOUND": ModelNotFound,

	"rate_limit": RateLimited, "rate_limit_error": RateLimited, "rate_limit_exceeded": RateLimited, "RESOURCE_EXHAUSTED": RateLimited,

	"overloaded": ModelUnavailable, "overloaded_error": ModelUnavailable, "api_error": ModelUnavailable, "server_error": ModelUnavailable,
	"timeout_error": ModelUnavailable, "UNAVAILABLE": ModelUnavailable, "INTERNAL": ModelUnavailable, "DEADLINE_EXCEEDED": ModelUnavailable,
}

// Reason is what an attempt ends for that such a failure ends, or nothing where
// it was what the agent asked.
func (f APIFailure) Reason() Reason {
	if why, known := apiKinds[f.Kind]; known {
		return why
	}
	switch {
	case f.Status == 401 || f.Status == 403:
		return Unauthorized
	case f.Status == 402:
		return Billing
	case f.Status == 429:
		return RateLimited
	case f.Status >= 500:
		return ModelUnavailable
	}
	return ""
}
