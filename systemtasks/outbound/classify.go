package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Verdict is what an answer means for the attempt (contract 2.6).
type Verdict int

// The verdicts on an answer.
const (
	Success    Verdict = iota // 2xx
	Retryable                 // FAILED, the retry policy decides
	Terminal                  // FAILED_WITH_TERMINAL_ERROR
	Unfollowed                // 3xx that is not followed: terminal, INVALID_REQUEST
	Malformed                 // no final answer at all: FAILED, CONNECTION_FAILED
)

// Classify judges a status (X3, contract 2.6).
func Classify(status int) Verdict {
	switch {
	case status >= 200 && status <= 299:
		return Success
	case status >= 300 && status <= 399:
		return Unfollowed
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return Retryable
	case status >= 400 && status <= 499:
		return Terminal
	case status == 500, status >= 502 && status <= 504, status >= 520 && status <= 599:
		return Retryable
	case status >= 500 && status <= 599: // 501, 505–519
		return Terminal
	}
	return Malformed // 1xx as a final answer, 600 and more, below 100
}

// Explain says in a stable text why no answer came. It looks at types first; what is left is the innermost text, without the
// URL, which may hold a query.
func Explain(err error) string {
	if text := explainTLS(err); text != "" {
		return text
	}
	var dns *net.DNSError
	var sys syscall.Errno
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the host name does not resolve"
	case errors.As(err, &dns):
		return "the host name could not be resolved: " + dns.Err
	case errors.As(err, &sys):
		return sys.Error() // connection refused, reset by peer, no route to host, broken pipe
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "connecting timed out"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection was closed before the answer was complete"
	}
	return innermost(err)
}

// explainTLS names a failed handshake or certificate, "" for anything else. The types are pinned by tests on the Go version in use.
func explainTLS(err error) string {
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &hostname):
		return "the certificate is for another host"
	case errors.As(err, &invalid):
		return "the certificate is not valid: " + invalid.Error()
	case errors.As(err, &verify):
		return "the certificate could not be verified: " + verify.Err.Error()
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the server does not speak TLS"
	case errors.As(err, &alert):
		return "the TLS handshake failed: " + alert.Error()
	}
	return ""
}

// innermost gives the text of an error below net/http's and net's own wrapping, which repeat the URL and the address.
func innermost(err error) string {
	for {
		var outer *url.Error
		var op *net.OpError
		switch {
		case errors.As(err, &outer):
			err = outer.Err
		case errors.As(err, &op):
			err = op.Err
		default:
			return strings.TrimPrefix(err.Error(), "net/http: ")
		}
	}
}

// Where gives a URI as reasons show it: scheme, host and path; no query, no user part (contract 2.6).
func Where(u *url.URL) string {
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("%s://%s%s", u.Scheme, u.Host, path)
}

// StatusLine gives "503 Service Unavailable": the registered phrase, not the server's, so that it is the same for every server.
func StatusLine(status int) string {
	if text := http.StatusText(status); text != "" {
		return fmt.Sprintf("%d %s", status, text)
	}
	return strconv.Itoa(status)
}
