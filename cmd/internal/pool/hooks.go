package pool

import (
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
