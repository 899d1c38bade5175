import { readdir, readFile } from 'node:fs/promises'
import { posix } from 'node:path'

/** A fenced block of a page. */
export interface Block {
  readonly page: string
  /** Of its first line, from 1. */
  readonly line: number
  readonly language: string
  readonly text: string
}

export interface Page {
  /** From the root of the checkout. */
  readonly path: string
  readonly text: string
  readonly blocks: readonly Block[]
  /** Valid fragments of links, without `#`. */
  readonly anchors: ReadonlySet<string>
}

/** Reads README and all pages of `docs`. */
export async function readPages(): Promise<readonly Page[]> {
  const names = await readdir('docs', { recursive: true })
  const paths = names.filter((name) => name.endsWith('.md')).map((name) => posix.join('docs', name))
  return Promise.all(['README.md', ...paths.sort()].map(readPage))
}

export async function readPage(path: string): Promise<Page> {
  const text = await readFile(path, 'utf8')
  const blocks = [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(
    ({ index, 1: language = '', 2: block = '' }) => ({
      page: path,
      line: text.slice(0, index).split('\n').length + 1,
      language,
      text: block,
    }),
  )
  return { path, text, blocks, anchors: new Set(anchorsOf(text)) }
}

/** Returns GitHub's anchors of headlines: lower case, hyphens for spaces, no other punctuation, a number on repeats. */
function anchorsOf(text: string): string[] {
  const seen = new Map<string, number>()
  return [...withoutBlocks(text).matchAll(/^#+ (.*)$/gm)].map(([, title = '']) => {
    const anchor = title
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-')
    const before = seen.get(anchor) ?? 0
    seen.set(anchor, before + 1)
    return before === 0 ? anchor : `${anchor}-${before}`
  })
}

export const withoutBlocks = (text: string): string => text.replace(/^```[\s\S]*?^```$/gm, '')
