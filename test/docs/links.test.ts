import assert from 'node:assert/strict'
import { readFile, stat } from 'node:fs/promises'
import { posix } from 'node:path'
import { test } from 'node:test'
import { commands } from '../../src/commands/index.ts'
import { scriptsIn } from './commands.ts'
import { type Page, readPage, readPages, withoutBlocks } from './pages.ts'

const pages = await readPages()
const others = [
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  'deploy/README.md',
  'deploy/RUNBOOK.md',
  'bench/README.md',
  'config/scenarios/README.md',
]
const all = new Map([...pages, ...(await Promise.all(others.map(readPage)))].map((page) => [page.path, page]))

/** Returns why a link is broken; undefined for a working link. */
async function brokenLink({ path }: Page, link: string): Promise<string | undefined> {
  const [file = '', anchor] = link.split('#')
  const target = file === '' ? path : posix.join(posix.dirname(path), file)
  const found = await stat(target).catch(() => undefined)
  if (found === undefined) return `${path}: ${link} is not there`
  if (anchor === undefined || all.get(target)?.anchors.has(anchor) === true) return undefined
  return `${path}: ${link} has no such headline`
}

test('links between pages, and to files of the checkout, lead somewhere', async () => {
  const links = [...all.values()].flatMap((page) =>
    [...withoutBlocks(page.text).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => ({ page, link })),
  )
  const own = links.filter(({ link }) => !/^https?:/.test(link))
  assert.ok(own.length > 300, String(own.length))
  const broken = await Promise.all(own.map(({ page, link }) => brokenLink(page, link)))
  assert.deepEqual(
    broken.filter((why) => why !== undefined),
    [],
  )
})

test('every page is reached from the README', () => {
  const reached = new Set<string>()
  const visit = (path: string) => {
    const page = all.get(path)
    if (page === undefined || reached.has(path)) return
    reached.add(path)
    for (const [, link = ''] of page.text.matchAll(/\]\(([^)\s#]+)[^)]*\)/g))
      visit(posix.join(posix.dirname(path), link))
  }
  visit('README.md')
  assert.deepEqual(
    pages.filter(({ path }) => !reached.has(path)).map(({ path }) => path),
    [],
  )
})

test('the README is short', () => {
  assert.ok((all.get('README.md')?.text.split('\n').length ?? Infinity) <= 121)
})

test('every command on a page exists', () => {
  const names = new Set<string>()
  for (const { text } of pages)
    for (const [, first, second] of text.matchAll(
      /(?:^npx|`|\$\(npx|\| npx) breakwater ([\w-]+)|`breakwater ([\w-]+)/gm,
    ))
      names.add(first ?? second ?? '')
  assert.ok(names.size > 8, [...names].join())
  assert.deepEqual(
    [...names].filter((name) => !(name in commands)),
    [],
  )
})

test('no page names a missing npm script', async () => {
  const { scripts } = JSON.parse(await readFile('package.json', 'utf8')) as { scripts: object }
  const named = new Set([...all.values()].flatMap(({ text }) => scriptsIn(text)))
  assert.ok(named.size > 20, [...named].join())
  assert.deepEqual(
    [...named].filter((name) => !(name in scripts)),
    [],
  )
})
