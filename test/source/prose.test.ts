import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

/** Words that point at another word. A stranger has to find the other word first. */
const POINTING = /\b(that|those|what|who|one|it|them|which|such)\b/gi

const root = fileURLToPath(new URL('../../..', import.meta.url))

/** Returns the text of files below a folder by path, of pages without code, of modules only comments. */
const proseOf = (folder: string, ending: string): Map<string, string> =>
  new Map(
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith(ending))
      .map((file) => [join(folder, file), plain(readFileSync(join(root, folder, file), 'utf8'), ending)]),
  )

function plain(text: string, ending: string): string {
  if (ending === '.md') return text.replace(/```[\s\S]*?```/g, '').replace(/`[^`]*`/g, 'x')
  const comments = text.matchAll(/\/\*\*?([\s\S]*?)\*\/|(?<=^|\s)\/\/ (.*)$/gm)
  return [...comments].map(([, block, line]) => block ?? line).join(' ')
}

/** Returns the number of pointing words per 100 words. */
function density(texts: Iterable<string>): number {
  const text = [...texts].join(' ')
  const words = text.match(/[A-Za-z']+/g)?.length ?? 0
  return ((text.match(POINTING)?.length ?? 0) * 100) / Math.max(1, words)
}

test('README and pages have fewer than four pointing words per 100, and no page more than nine', () => {
  const readme = plain(readFileSync(join(root, 'README.md'), 'utf8'), '.md')
  assert.ok(density([readme]) < 4, `README: ${density([readme])}`)
  const pages = proseOf('docs', '.md')
  assert.ok(density(pages.values()) < 4, `pages: ${density(pages.values())}`)
  const worst = [...pages].filter(([, text]) => density([text]) > 9).map(([path]) => path)
  assert.deepEqual(worst, [])
})

test('comments of src have fewer than five pointing words per 100, and finished folders fewer than three', () => {
  const comments = proseOf('src', '.ts')
  assert.ok(density(comments.values()) < 5, `comments: ${density(comments.values())}`)
  for (const folder of [
    'access',
    'chaos',
    'config',
    'console',
    'load',
    'policies',
    'telemetry',
    'upstreams',
    'wire',
  ]) {
    const texts = proseOf(join('src', folder), '.ts').values()
    assert.ok(density(texts) < 3, folder)
  }
})
