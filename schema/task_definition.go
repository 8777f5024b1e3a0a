package schema

// RetryLogic is the shape of the delay between attempts (NF-024, contract 3.1).
type RetryLogic string

// The shapes of a back-off.
const (
	RetryFixed       RetryLogic = "FIXED"
	RetryLinear      RetryLogic = "LINEAR_BACKOFF"
	RetryExponential RetryLogic = "EXPONENTIAL_BACKOFF"
)

// TimeoutPolicy says what a missed deadline does (X7).
type TimeoutPolicy string

// The policies of a missed deadline.
const (
	TimeoutWorkflow  TimeoutPolicy = "TIME_OUT_WF"
	TimeoutRetry     TimeoutPolicy = "RETRY"
	TimeoutAlertOnly TimeoutPolicy = "ALERT_ONLY"
)

// Delivery says whether lost work is delivered again (X4).
type Delivery string

// The delivery modes.
const (
	AtLeastOnce Delivery = "atLeastOnce"
	AtMostOnce  Delivery = "atMostOnce"
)

// RetryPolicy is the retry part of a definition. It is pinned with a task run (P6).
type RetryPolicy struct {
	RetryCount         int        // attempts after the first, 0–100
	Logic              RetryLogic //
	Delay              Millis     // base, 0–86,400,000
	BackoffScaleFactor float64    // 1–1000
	MaxDelay           Millis     // ceiling, 0–86,400,000; 0 = every delay is 0
	Jitter             float64    // 0–1, proportional, ±
	NonRetryableErrors []string   // case-sensitive substrings of the reason
}

// DefaultRetry is the built-in policy: the defaults of contract 1.4. Dispatched system tasks without a definition use it.
func DefaultRetry() RetryPolicy {
	return RetryPolicy{RetryCount: 3, Logic: RetryExponential, Delay: 1000, BackoffScaleFactor: 2, MaxDelay: 3_600_000, Jitter: 0.2}
}

// TaskDefinition is contract 1.4, defaults filled in.
type TaskDefinition struct {
	Metadata Metadata
	Retry    RetryPolicy
	// RetryBudget is the share of retries allowed in 300 s (NF-029): 1 = off, 0 = none from 20 attempts on. Live.
	RetryBudget            float64
	ScheduleToStartTimeout Millis // 0 = not armed, as for the next four
	StartToCloseTimeout    Millis
	Timeout                Millis // timeoutSeconds: visible → terminal, per attempt
	TotalTimeout           Millis
	HeartbeatTimeout       Millis // 0 or ≥ 1000
	ResponseTimeout        Millis // longest lease, ≥ 1000
	PollTimeout            Millis // longest long poll, 0–30,000
	TimeoutPolicy          TimeoutPolicy
	Delivery               Delivery
	ConcurrentExecLimit    int64 // 0 = unlimited (absent)
	Semaphores             []Ref
	InputSchema            Value // JSON Schema or nil
	OutputSchema           Value
}

// Address implements Object.
func (o *TaskDefinition) Address() Address {
	return Address{KindTaskDefinition, o.Metadata.Namespace, o.Metadata.Name}
}

// Meta implements Object.
func (o *TaskDefinition) Meta() Metadata { return o.Metadata }
func (*TaskDefinition) isObject()        {}
