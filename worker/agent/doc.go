// Package agent knows the coding agents: how to start each, and how to read
// what it says.
//
//	Get(name) ─▶ Adapter.Launch ─▶ Plan (arguments, environment, files, stdin)
//	                  │                      the worker runs it in a jail
//	           Adapter.Decoder ─▶ Line, Line, … ─▶ events, replies, state
//	                                    └──────▶ Exit ─▶ run.exited, verdict
//
// An agent is untrusted, and so is what it prints. A decoder turns lines into
// events of the pool's vocabulary and never fails: what it does not know is
// passed on as agent.raw, what is not JSON as output.line. Every line of the
// agent is carried by exactly one event, the first that is made of it, so the
// output can be put together again. No line of an agent can make an event of
// the pool (job.*, jail.*, check.*): it is always data.
//
// The verdict on a run is made of the agent's last turn and of whether a turn
// was open when the process ended. The exit code alone decides nothing where
// an agent reports its turns: agents end with 0 after an interrupted turn and
// with 143 after a good one.
//
// Nothing here starts a process, except [Agents.Check], which asks an
// installed program for its version.
package agent
