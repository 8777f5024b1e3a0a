package schema

// TaskType is the type of a task in a workflow.
type TaskType string

// The task types of wave 1.
const (
	TypeSimple      TaskType = "SIMPLE"
	TypeHTTP        TaskType = "HTTP"
	TypeGRPC        TaskType = "GRPC"
	TypeSwitch      TaskType = "SWITCH"
	TypeForkJoin    TaskType = "FORK_JOIN"
	TypeJoin        TaskType = "JOIN"
	TypeSetVariable TaskType = "SET_VARIABLE"
	TypeTerminate   TaskType = "TERMINATE"
	TypeWait        TaskType = "WAIT"
)

// Class groups task types by who ends them (contract 1.6).
type Class int

// The classes of task types.
const (
	ClassWorker    Class = iota + 1 // dispatched to workers: SIMPLE
	ClassRunner                     // dispatched to the runner: HTTP, GRPC
	ClassWaiting                    // parked: WAIT
	ClassSpanning                   // open operator: JOIN
	ClassImmediate                  // decided at once: SWITCH, FORK_JOIN, SET_VARIABLE, TERMINATE
)

// Class gives the class of a known type, 0 for any other.
func (t TaskType) Class() Class {
	switch t {
	case TypeSimple:
		return ClassWorker
	case TypeHTTP, TypeGRPC:
		return ClassRunner
	case TypeWait:
		return ClassWaiting
	case TypeJoin:
		return ClassSpanning
	case TypeSwitch, TypeForkJoin, TypeSetVariable, TypeTerminate:
		return ClassImmediate
	}
	return 0
}

// Dispatched says whether attempts of the class are queued and leased.
func (c Class) Dispatched() bool { return c == ClassWorker || c == ClassRunner }

// Workflow is contract 1.5.
type Workflow struct {
	Metadata         Metadata
	Version          int64 // 0 = none
	Tasks            []*Task
	OutputParameters map[string]Value // nil = output of the last completed task
	Variables        map[string]Value
	InputSchema      Value
	Timeout          Millis // 0 = not armed
}

// Task is one step of a workflow (contract 1.6, 1.7). Fields of other types than its own are zero.
type Task struct {
	Ref             string // taskReferenceName
	Type            TaskType
	Definition      string // `name`: a TaskDefinition of the workflow's namespace, "" = none
	InputParameters map[string]Value
	Optional        bool
	RetryCount      *int // overlays the policy's; nil = the policy's
	StartDelay      Millis
	Description     string
	Timeout         Millis // waiting types that name no definition

	EvaluatorType string             // SWITCH: value-param
	Expression    string             // SWITCH: name of an input key
	DecisionCases map[string][]*Task // SWITCH
	DefaultCase   []*Task            // SWITCH
	ForkTasks     [][]*Task          // FORK_JOIN
	JoinOn        []string           // JOIN; nil = the last task of every branch
}

// Address implements Object.
func (o *Workflow) Address() Address {
	return Address{KindWorkflow, o.Metadata.Namespace, o.Metadata.Name}
}

// Meta implements Object.
func (o *Workflow) Meta() Metadata { return o.Metadata }
func (*Workflow) isObject()        {}
