package pool

import (
	"sync"
	"time"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/traces"
	"github.com/penstock-run/penstock/worker"
)

// Hooks connect the services to their observers. The zero value observes nothing.
type Hooks struct {
	Queue      queue.Hooks
	Dispatcher dispatcher.Hooks
	Webhooks   deliver.Hooks
	Worker     worker.Hooks
	Traces     traces.Hooks
	// Expired counts jobs that a rule of retention has removed; may be nil.
	Expired func(jobs int)
}

// WhenPresent returns hooks that also call ready once, as soon as the pool knows of the
// worker: a command that follows what says that it is ready finds it.
func (h Hooks) WhenPresent(ready func()) Hooks {
	present, once := h.Worker.Present, sync.OnceFunc(ready)
	h.Worker.Present = func(at time.Time) {
		if present != nil {
			present(at)
		}
		once()
	}
	return h
}
