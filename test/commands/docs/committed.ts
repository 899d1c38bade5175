import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import type { Pages } from '../../../docs/generate/markdown.ts'

/** Checks that `docs` holds the index `{kind}.md` and below `{kind}/` exactly these generated pages. */
export async function assertCommitted(kind: string, pages: Pages): Promise<void> {
  const committed = (await readdir(`docs/${kind}`)).map((name) => `${kind}/${name}`)
  assert.deepEqual([`${kind}.md`, ...committed].sort(), Object.keys(pages).sort())
  for (const [path, text] of Object.entries(pages))
    assert.equal(await readFile(`docs/${path}`, 'utf8'), text, path)
}
