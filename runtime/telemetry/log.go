package telemetry

// Keys of log attributes.
const (
	KeyRunner      = "runner"
	KeyLoop        = "loop"
	KeyError       = "error"
	KeyNamespace   = "namespace"
	KeyExecution   = "execution"
	KeyTask        = "task"
	KeyQueue       = "queue"
	KeyWorker      = "worker"
	KeyProject     = "project"
	KeyGeneration  = "generation"
	KeyCommit      = "commit"
	KeyRequestID   = "requestId"
	KeyRoute       = "route"
	KeyStatus      = "status"
	KeyCount       = "count"
	KeyEnvironment = "environment"
	KeyAddress     = "address"
)
