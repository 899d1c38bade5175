import { editorSchema } from './editor-schema.ts'

// Run by itself: prints what config/breakwater.schema.json holds.
process.stdout.write(`${JSON.stringify(editorSchema(), null, 2)}\n`)
