// Package gate is a session's only way out: it passes calls of the model API
// from a jail to the provider, and nothing else.
//
//	agent ──▶ jail's loopback ──▶ Serve ── allowed? ── inspect ── + key ──▶ provider
//	                                 │ 403, counted         budget left? │
//	agent ◀── answer, key scrubbed ◀─┴────────── meter ◀─────────────────┘
//
// The jail holds no key. It holds a token of its session and sends it as if it were
// a key; only requests with the token are let in. The gate drops the credentials of
// a request and adds the real ones outside. It takes method, path, query and headers
// of the outgoing request from a list; there is one upstream, and the name of no
// other host is ever looked up. Requests that would make the provider itself reach
// into the network for the agent are refused too, unless the session allows
// them: tools that run there, and contents given by URL.
//
// The gate counts tokens and their cost while the provider reports them, and estimates
// upwards what it does not report. Each call reserves the most that it can cost before it
// is let through, so that a session exceeds its budget by one answer at the most. Once the
// budget is spent, the gate refuses calls in the provider's own words, and cuts calls that
// are under way, except for the one that spent the budget.
//
// The key is in no error and no hook, and the gate blanks it in the provider's
// answers. That holds for the key as it is: if a provider sent it back encoded, or
// in pieces, the gate would pass it on.
package gate
