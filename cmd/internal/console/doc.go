// Package console prints the output of commands: a terminal shows only what was meant
// to be shown there.
//
// Most of a command's output comes from others: agents, issues, file names, remote
// errors. A terminal interprets some of it. Escape sequences move the cursor, set
// titles and fill the clipboard; a carriage return or a line break forges a line of
// ours; bidirectional and invisible characters make one text look like another. So
// there is one way out, a [Writer]:
//
//	Printf   each argument becomes one line of visible text ([visible.Line])
//	Row      the same for spans of text, with our own colours between them
//	Live     rows of such spans that stay below all that is written, and change
//	Write    whole documents, such as a patch: exact bytes to a pipe or a file,
//	         visible ones to a terminal ([visible.Document])
//	Raw      the stream itself, for commands whose purpose is another's terminal
//
// A Writer writes such characters as JSON does, as in \u001b, so that they are visible,
// and so that a JSON document stays the same document ([JSON]).
package console
