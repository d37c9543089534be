// Package summary says in a few words what people should know of a session: of an event,
// of a tool and the change that it makes, of tokens and time; values only. Terminals and
// pages show the same words, each in its own look. What it says holds text of strangers,
// as they wrote it.
package summary
