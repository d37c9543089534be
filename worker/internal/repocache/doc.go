// Package repocache caches repositories on this host, and the parts of jobs' workspaces
// that it makes from them.
//
//	remote ──fetch──▶ mirror ──▶ Base ──▶ template ──▶ Layer
//	                    │          │          │           what setup wrote over it
//	                    │          │          files that overlays show
//	                    │          a git directory and an index of one commit
//	                    a bare repository
//
// An entry with its final name is complete and never changes: the holder of the
// mirror's or the layer's lock makes it under another name, and renames it. It stays
// while it is held, or while a workspace on the disk is based on it ([InUse]), and is
// evicted by age and size.
//
//	mirrors/<remote>/mirror.git      "unfinished" beside it: git was at work there
//	mirrors/<remote>/bases/<commit>  with "git", "index", and "template"
//	  …/layers/<key>                 with "files", and "layer.json", written last
//
// A template is whole, or a delta over that of another commit. Bases share packs of their
// histories by links. A damaged mirror is fetched anew.
package repocache
