// Package traces turns hooks into spans, and exports them by OTLP over HTTP.
//
//	Read ─▶ Open ─▶ Submitted, Waited, Stage, Released, WorkerLost ─▶ queue ─▶ collector
//
// The spans of a job are one trace, whichever processes have made them:
//
//	submit {queue}         by the dispatcher that has accepted the job
//	 ├─ queue_wait         from when the job could be claimed until it was
//	 └─ process {queue}    one attempt, from its claim until its slot is free; or until the
//	     │                 last heartbeat of a worker that died, by whoever takes over
//	     └─ provision, agent, check, collect, deliver, publish, cleanup
//
// Package jobs decides the ids of the spans, so that no process needs to ask another
// one, and the agent knows that of its attempt. A job of a batch has a trace of its own,
// with a link to where the batch was submitted.
//
// Nothing waits for the collector. Spans are queued, and what the queue has no room for,
// or the collector does not take, is counted and dropped.
//
// Spans hold ids, numbers and words of the vocabulary: no prompt, no command, no
// message, and no address of a repository.
//
// With the build tag nootel the package has no export and none of its modules. [Open]
// then returns [ErrNotBuilt].
package traces
