package systemtasks

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"nf/schema"
)

// Catalog is the set of system tasks of a process, by type. It is immutable and safe for concurrent use; the zero value is empty.
type Catalog struct{ tasks map[schema.TaskType]Task }

// NewCatalog makes a catalog. A nil task, a type that the runner does not dispatch and two tasks of one type are errors.
func NewCatalog(tasks ...Task) (Catalog, error) {
	byType := make(map[schema.TaskType]Task, len(tasks))
	for _, task := range tasks {
		if task == nil {
			return Catalog{}, errors.New("building the catalog of system tasks: a task is nil")
		}
		t := task.Type()
		if t.Class() != schema.ClassRunner {
			return Catalog{}, fmt.Errorf("building the catalog of system tasks: type %q is not executed by the runner", t)
		}
		if _, taken := byType[t]; taken {
			return Catalog{}, fmt.Errorf("building the catalog of system tasks: two tasks of type %q", t)
		}
		byType[t] = task
	}
	return Catalog{tasks: byType}, nil
}

// Get gives the task of a type.
func (c Catalog) Get(t schema.TaskType) (Task, bool) {
	task, ok := c.tasks[t]
	return task, ok
}

// Types lists the types of the catalog in alphabetical order.
func (c Catalog) Types() []schema.TaskType { return slices.Sorted(maps.Keys(c.tasks)) }
