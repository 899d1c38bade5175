import { dirname, isAbsolute, join } from 'node:path'
import type { ConfigIssue } from '../issues/issues.ts'
import { isPlainMap } from '../schema/plain-map.ts'
import { parseSource, type SourceDocument } from './document.ts'
import type { Env } from './interpolate.ts'
import { Origins } from './origins.ts'
import { ownBlock } from './own-block.ts'
import { formatPath, type Path } from './path.ts'
import { readText } from './read-text.ts'
import { type Reading, readValues } from './read-values.ts'

/** A config as it was written, its files put together. */
interface Sources extends Reading {
  /** Undefined when there is nothing to check, because the main file cannot be read or parsed. */
  readonly value: unknown
  /** Files in the order in which they were read, as issues name them. */
  readonly files: readonly string[]
}

/** Reads `main` and the files that stand for whole blocks of it (`policies: { file: policies.yaml }`). */
export async function readSources(main: string, env: Env): Promise<Sources> {
  const files: string[] = []
  const reading: Reading = { env, origins: new Origins(), issues: [], interpolated: new Set() }

  function fail(
    place: Pick<ConfigIssue, 'file' | 'line' | 'column'>,
    path: Path,
    message: string,
  ): undefined {
    reading.issues.push({ severity: 'error', ...place, path: formatPath(path), message })
  }

  async function open(
    file: string,
    unreadable: (problem: string) => undefined,
  ): Promise<SourceDocument | undefined> {
    files.push(file)
    const read = await readText(file)
    if ('problem' in read) return unreadable(read.problem)
    const source = parseSource(file, read.text)
    for (const { position, message } of source.problems) fail({ file, ...position }, [], message)
    if (source.problems.length > 0) return undefined
    // An empty file is most often one that is being written just now.
    if (source.root === null) return fail({ file, line: 1, column: 1 }, [], 'the file is empty')
    return source
  }

  async function include(block: string, named: string): Promise<unknown> {
    const file = isAbsolute(named) ? named : join(dirname(main), named)
    const place = reading.origins.locate([block, 'file'])
    const source = await open(file, (problem) => fail(place, [block, 'file'], `${file} ${problem}`))
    if (source === undefined) return undefined
    const { node, strangers } = ownBlock(block, source)
    for (const { name, node: key } of strangers) {
      fail({ file, ...source.positionOf(key) }, [name], `only "${block}" is read from this file`)
    }
    return readValues(file, source, node, [block], reading)
  }

  const source = await open(main, (problem) => fail({ file: main }, [], problem))
  const value = source && readValues(main, source, source.root, [], reading)
  for (const [block, held] of Object.entries(isPlainMap(value) ? value : {})) {
    if (!isPlainMap(value) || !isPlainMap(held) || typeof held.file !== 'string') continue
    const beside = Object.keys(held).find((key) => key !== 'file')
    if (beside !== undefined) {
      const path = [block, beside]
      fail(reading.origins.locate(path, 'key'), path, 'a block that is a "file" has no other keys')
    } else if (held.file === '' && !reading.issues.some(({ path }) => path === `${block}.file`)) {
      fail(reading.origins.locate([block, 'file']), [block, 'file'], 'expected the path of a file, found ""')
    }
    // A block that cannot be read counts as absent, so that the others are checked all the same.
    value[block] = held.file === '' || beside !== undefined ? undefined : await include(block, held.file)
  }
  return { ...reading, value, files }
}
