package api

import (
	"fmt"
	"net/http"
)

// code is a word of the error ErrorBody (contract 4.1). The set is closed.
type code string

const (
	codeInvalidArgument   code = "INVALID_ARGUMENT"
	codeInvalidJSON       code = "INVALID_JSON"
	codeSchemaViolation   code = "SCHEMA_VIOLATION"
	codeUnauthenticated   code = "UNAUTHENTICATED"
	codeInsufficientScope code = "INSUFFICIENT_SCOPE"
	codeNotFound          code = "NOT_FOUND"
	codeMethodNotAllowed  code = "METHOD_NOT_ALLOWED"
	codeConflict          code = "CONFLICT"
	codeIdemMismatch      code = "IDEMPOTENCY_MISMATCH"
	codeRetired           code = "RETIRED"
	codeLeaseExpired      code = "LEASE_EXPIRED"
	codeTerminalState     code = "TERMINAL_STATE"
	codePayloadTooLarge   code = "PAYLOAD_TOO_LARGE"
	codeMediaType         code = "UNSUPPORTED_MEDIA_TYPE"
	codeReloadFailed      code = "RELOAD_FAILED"
	codeLimitExceeded     code = "LIMIT_EXCEEDED"
	codeInternal          code = "INTERNAL"
	codeUnavailable       code = "UNAVAILABLE"
)

// httpStatus is the status of each code, and so the list of them.
var httpStatus = map[code]int{
	codeInvalidArgument: http.StatusBadRequest, codeInvalidJSON: http.StatusBadRequest, codeSchemaViolation: http.StatusBadRequest,
	codeUnauthenticated: http.StatusUnauthorized, codeInsufficientScope: http.StatusForbidden, codeNotFound: http.StatusNotFound,
	codeMethodNotAllowed: http.StatusMethodNotAllowed, codeConflict: http.StatusConflict, codeIdemMismatch: http.StatusConflict,
	codeRetired: http.StatusConflict, codeLeaseExpired: http.StatusConflict, codeTerminalState: http.StatusConflict,
	codePayloadTooLarge: http.StatusRequestEntityTooLarge, codeMediaType: http.StatusUnsupportedMediaType,
	codeReloadFailed: http.StatusUnprocessableEntity, codeLimitExceeded: http.StatusTooManyRequests, codeInternal: http.StatusInternalServerError, codeUnavailable: http.StatusServiceUnavailable,
}

// failure is a refusal that the caller is told in the error ErrorBody.
type failure struct {
	code       code
	message    string
	details    map[string]any
	retryAfter int // whole seconds ≥ 1, 0 = unknown
	cause      error
}

func (f *failure) Error() string { return fmt.Sprintf("%s: %s", f.code, f.message) }
func (f *failure) Unwrap() error { return f.cause }

// ErrorBody is the JSON of a refusal.
type ErrorBody struct {
	Error     code           `json:"error"`
	Message   string         `json:"message"`
	Details   map[string]any `json:"details,omitempty"`
	RequestID string         `json:"requestId,omitempty"`
}

func invalid(field, expected, format string, args ...any) *failure {
	return &failure{code: codeInvalidArgument, message: fmt.Sprintf(format, args...), details: map[string]any{"field": field, "expected": expected}}
}

func notFound(format string, args ...any) *failure {
	return &failure{code: codeNotFound, message: fmt.Sprintf(format, args...)}
}
