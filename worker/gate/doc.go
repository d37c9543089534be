// Package gate is a session's only way out: it passes calls of the model API
// from a jail to the provider, and nothing else.
//
//	agent ──▶ jail's loopback ──▶ Serve ── allowed? ── inspect ── + key ──▶ provider
//	                                 │ 403, counted         budget left? │
//	agent ◀── answer, key scrubbed ◀─┴────────── meter ◀─────────────────┘
//
// The jail holds no key, but a token of its session, which it sends as if it were
// one: who has it is let in. Whatever credentials a request brings are dropped, and
// the real one is added outside. Method, path, query and headers of what
// goes out are taken from a list; there is one upstream, and the name of no
// other host is ever looked up. What would make the provider itself reach
// into the network for the agent is refused too, unless the session allows
// it: tools that run there, and contents given by URL.
//
// The gate counts tokens as the provider reports them, while they come. Once
// a session's budget is spent, calls are refused in the provider's own words,
// and calls that are under way are cut, except for the one that spent it.
//
// The key stands in no error and no hook, and is blanked in whatever the
// provider answers. That holds for the key as it is: a provider that sent it
// back encoded, or in pieces, would be passed on.
package gate
