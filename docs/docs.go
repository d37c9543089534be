// Package docs is the documentation, as files in the program.
package docs

import "embed"

// Files are all pages, and what they show.
//
//go:embed *.md */*
var Files embed.FS
