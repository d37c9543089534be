// Package agent is the contract between the worker and the coding agents: an [Adapter]
// plans how to start an agent, and decodes its output. It also chooses one by name, out
// of the built-in agents and those that a settings file adds. Each built-in agent has a
// package under internal, and the package builtin lists them.
//
//	Get(name) ─▶ Adapter.Launch ─▶ Plan (arguments, environment, files, stdin)
//	                  │                      the worker runs it in a jail
//	           Adapter.Decoder ─▶ Line, Line, … ─▶ events, replies, state
//	                                    └──────▶ Exit ─▶ run.exited, verdict
//
// An agent is untrusted, and so is what it prints. A decoder turns lines into events of
// the pool's vocabulary and never fails: a line that it does not know becomes
// agent.raw, and a line that is not JSON becomes output.line. Exactly one event carries
// each line of the agent, the first that is made of it, so the output can be
// reconstructed. No line of an agent can make an event of the pool (job.*, jail.*,
// check.*): it is always data.
//
// The verdict on a run follows from the agent's last turn and from whether a turn was
// open when the process ended. The exit code alone decides nothing if an agent reports
// its turns: agents end with 0 after an interrupted turn and with 143 after a good one.
//
// Nothing here starts a process, except [Agents.Check], which asks an installed program
// for its version.
package agent
