// Package repocache keeps what this host has fetched of repositories, and what
// it made of it for the workspaces of jobs.
//
//	remote ──fetch──▶ mirror ──▶ Base ──▶ template ──▶ Layer
//	                    │          │          │           what setup wrote over it
//	                    │          │          files that overlays show
//	                    │          a git directory and an index of one commit
//	                    a bare repository
//
// What has its name is whole and never changes: it is made under another name,
// by who holds the mirror's lock or the layer's, and renamed. It stays while
// somebody holds it, or a workspace on the disk was made from it ([InUse]), and
// goes by age and size.
//
//	mirrors/<remote>/mirror.git      "unfinished" beside it: git was at work there
//	mirrors/<remote>/bases/<commit>  with "git", "index", and "template"
//	  …/layers/<key>                 with "files", and "layer.json", written last
//
// A template is whole, or a delta over that of another commit. A mirror that
// turns out to be damaged is fetched anew.
package repocache
