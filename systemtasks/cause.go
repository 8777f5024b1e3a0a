package systemtasks

// The causes that system tasks give, a part of the closed list of contract 2.4.
const (
	CauseHTTPStatus        = "HTTP_STATUS"
	CauseGRPCStatus        = "GRPC_STATUS"
	CauseConnectionFailed  = "CONNECTION_FAILED"
	CauseCallTimeout       = "CALL_TIMEOUT"
	CauseInvalidRequest    = "INVALID_REQUEST"
	CauseInputInvalid      = "INPUT_INVALID"
	CauseOutputInvalid     = "OUTPUT_INVALID"
	CauseOutputTooLarge    = "OUTPUT_TOO_LARGE"
	CauseSecretUnavailable = "SECRET_UNAVAILABLE"
)

// The sources of a provider's minimum wait (contract 3.4).
const (
	SourceRetryAfter = "retryAfter"
	SourceRetryInfo  = "retryInfo"
)
