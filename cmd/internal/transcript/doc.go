// Package transcript shows a session to a person at a terminal, event by event.
//
//	● 01a205f6-dbaa-771f  claude · app@59cac62 · overlay 0.2 s · bwrap
//	  I will look at the repository first.
//	▸ Bash  ls -la
//	      total 16
//	      … 4 more lines · 0.2 s
//	▸ Edit  README.md  +1 −1
//	    - hello
//	    + hello, reader
//	✓ success in 2.8 s · 2 files · 4 turns · 4,000 in, 200 out · $0.02
//	  penstock job diff 01a205f6-dbaa-771f
//
// A [Batch] shows many at once: a line for each that has ended, and below them
// those that run, drawn anew as they go on and as the terminal changes its size.
//
// The first column is ours: whatever an agent, a program or a person wrote begins
// in the third or later, also where a line is wrapped, so none of it can pass for
// a mark, a question or an end. It is shown as text: no event is shown as JSON.
package transcript
