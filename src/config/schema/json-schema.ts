import { editorSchema } from './editor-schema.ts'

// Run by itself: prints the content of config/breakwater.schema.json.
process.stdout.write(`${JSON.stringify(editorSchema(), null, 2)}\n`)
