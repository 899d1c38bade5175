import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { main } from './support/main.ts'

const dist = dirname(main)
const root = fileURLToPath(new URL('../..', import.meta.url))

/** Returns the texts of a folder's files by path. */
async function textsIn(folder: string, end: string): Promise<ReadonlyMap<string, string>> {
  const files = (await readdir(folder, { recursive: true })).filter((file) => file.endsWith(end))
  return new Map(
    await Promise.all(files.map(async (file) => [file, await readFile(join(folder, file), 'utf8')] as const)),
  )
}

test('every import of the program is a file of its own, a module of Node, or a dependency', async () => {
  const { dependencies, peerDependencies } = JSON.parse(
    await readFile(join(root, 'package.json'), 'utf8'),
  ) as Record<'dependencies' | 'peerDependencies', Record<string, string>>
  const packages = new Set<string>()
  for (const [file, text] of await textsIn(dist, '.js')) {
    const imports = [
      ...text.matchAll(/^(?:import|export)\b[^'"]*?['"]([^'"]+)['"]/gm),
      ...text.matchAll(/\bimport\(['"]([^'"]+)['"]\)/g),
    ]
    for (const [, name = ''] of imports) {
      if (name.startsWith('.')) assert.ok(existsSync(join(dist, name)), `${file} imports ${name}`)
      else if (!name.startsWith('node:'))
        packages.add(
          name
            .split('/')
            .slice(0, name.startsWith('@') ? 2 : 1)
            .join('/'),
        )
    }
  }
  assert.ok(packages.has('fastify'))
  assert.deepEqual(
    [...packages].filter((name) => !(name in dependencies || name in peerDependencies)),
    [],
  )
})

test('programs and threads that the program starts from its own files exist', async () => {
  const started = [...(await textsIn(join(root, 'src'), '.ts')).values()].flatMap((text) =>
    [...text.matchAll(/new URL\('\.\/([^']+)', import\.meta\.url\)/g)].map(([, file = '']) => file),
  )
  assert.ok(started.includes('supervisor.js'))
  for (const file of started) assert.ok(existsSync(join(dist, file)), file)
})
