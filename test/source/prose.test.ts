import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

/** Words that point at another word. A stranger has to find the other word first. */
const POINTING = /\b(that|those|what|who|one|it|them|which|such)\b/gi

/** Most pointing words per 100 words, over all texts of a kind and in a single file. */
const MOST = 4
const MOST_IN_A_FILE = 8

/** Files with fewer words have no density to speak of. */
const FEWEST_WORDS = 50

/** Longest sentence, in words. */
const LONGEST = 30

const root = fileURLToPath(new URL('../../..', import.meta.url))

/** Returns the paragraphs of a file's prose: a page without its code, or the comments of a module. */
function paragraphsOf(path: string): string[] {
  const text = readFileSync(join(root, path), 'utf8')
  if (path.endsWith('.md')) {
    const blocks = text
      .replace(/```[\s\S]*?```|<!--[\s\S]*?-->/g, '\n\n')
      .split(/\n\s*\n|\n(?=\s*(?:[-*|>#]|\d+\.) )/)
    return blocks.map((block) => block.replace(/\]\([^)]*\)/g, ']'))
  }
  const blocks = [...text.matchAll(/(?<=^|\s)\/\*\*?\s([\s\S]*?)\*\//gm)].map(([, block = '']) =>
    block.replace(/^\s*\* ?/gm, ''),
  )
  const lines = [...text.matchAll(/(?:^\s*\/\/ .*\n)+|(?<=\S\s)\/\/ .*$/gm)].map(([run]) =>
    run.replace(/^\s*\/\/ /gm, ''),
  )
  return [...blocks.flatMap((block) => block.split(/\n\s*\n|\n(?=\s*- |\s{2})/)), ...lines]
}

const wordsOf = (text: string) => text.replace(/`[^`]*`/g, 'x').match(/[A-Za-z0-9'’%/×.-]*[A-Za-z0-9]/g) ?? []

/** Returns the number of pointing words per 100 words. */
function densityOf(paragraphs: readonly string[]): number {
  const text = paragraphs.join(' ').replace(/`[^`]*`/g, 'x')
  return ((text.match(POINTING)?.length ?? 0) * 100) / Math.max(1, text.match(/[A-Za-z']+/g)?.length ?? 0)
}

const sentencesOf = (paragraph: string) =>
  paragraph
    .replace(/\s+/g, ' ')
    .trim()
    .split(/(?<=[.!?:;]["”)*]*) /)

const filesIn = (folder: string, ending: string) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith(ending) && !file.includes('node_modules'))
    .map((file) => join(folder, file))

const kinds = {
  README: ['README.md'],
  pages: [...filesIn('docs', '.md'), 'CONTRIBUTING.md', 'CHANGELOG.md'],
  'comments of src': filesIn('src', '.ts'),
  'comments of tests': filesIn('test', '.ts'),
  'comments of bench, deploy and docs': ['bench', 'deploy', 'docs'].flatMap((folder) =>
    filesIn(folder, '.ts'),
  ),
}

for (const [kind, files] of Object.entries(kinds)) {
  const texts = files.map((path) => ({ path, paragraphs: paragraphsOf(path) }))

  test(`${kind}: fewer than ${MOST} pointing words per 100, and at most ${MOST_IN_A_FILE} in a file`, () => {
    const density = densityOf(texts.flatMap(({ paragraphs }) => paragraphs))
    assert.ok(density > 0 && density < MOST, `${density.toFixed(2)}`)
    const long = texts.filter(({ paragraphs }) => wordsOf(paragraphs.join(' ')).length >= FEWEST_WORDS)
    const worst = long.map(({ path, paragraphs }) => ({ path, density: densityOf(paragraphs) }))
    assert.deepEqual(
      worst.filter(({ density }) => density > MOST_IN_A_FILE),
      [],
    )
  })

  test(`${kind}: no sentence has more than ${LONGEST} words`, () => {
    const tooLong = texts.flatMap(({ path, paragraphs }) =>
      paragraphs
        .filter((paragraph) => !/^\s*[|#]/.test(paragraph))
        .flatMap(sentencesOf)
        .filter((sentence) => wordsOf(sentence).length > LONGEST)
        .map((sentence) => `${path}: ${sentence}`),
    )
    assert.deepEqual(tooLong, [])
  })
}

test('a sentence of 31 words is too long, and code in it counts as a word', () => {
  const sentence = `${'word '.repeat(29)}\`a b c\` end. Another.`
  assert.deepEqual(
    sentencesOf(sentence).map((one) => wordsOf(one).length),
    [31, 1],
  )
  assert.equal(densityOf(['It is one of those, `what that`.']).toFixed(0), '50')
})
