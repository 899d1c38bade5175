import { access, constants, lstat, realpath, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { hasUnprintable, printable } from '../../../telemetry/printable.ts'
import type { Checked, Result } from './result.ts'

const LONGEST = 2_000

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
}

/** Escapes a text for XML 1.0, which cannot hold control characters: they are written as `\u001b`. */
function escaped(text: string): string {
  const shown = hasUnprintable(text) || text.length > LONGEST ? printable(text, LONGEST) : text
  return shown
    .replace(/[\p{Surrogate}\ufffe\uffff]/gu, '\ufffd')
    .replace(/[&<>"']/g, (found) => entities[found] ?? found)
}

type Attributes = Readonly<Record<string, string | number | undefined>>

/** Returns an XML element; each text of `inside` is XML and gets its own line. */
function element(name: string, attributes: Attributes, inside: readonly string[] = []): string {
  const written = Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [` ${key}="${escaped(String(value))}"`],
  )
  const start = `<${name}${written.join('')}`
  if (inside.length === 0) return `${start}/>`
  const indented = inside.map((part) => part.replace(/^/gm, '  '))
  return `${start}>\n${indented.join('\n')}\n</${name}>`
}

const inSeconds = (ms: number): string => (ms / 1_000).toFixed(3)

/** A case of a suite: an assertion, or the run itself when it proves nothing or was skipped. */
interface Case {
  readonly name: string
  readonly kind: 'pass' | 'failure' | 'error' | 'skipped'
  readonly message: string
}

const kinds = { pass: 'pass', fail: 'failure', undecided: 'error', skipped: 'skipped' } as const

function casesOf({ checks, flaws, skipped }: Result): Case[] {
  const ofCheck = ({ name, verdict, measured }: Checked): Case => ({
    name,
    kind: kinds[verdict],
    message: measured,
  })
  return [
    ...flaws.map((message): Case => ({ name: 'the run is valid', kind: 'error', message })),
    ...(skipped === undefined ? [] : [{ name: 'the run', kind: 'skipped', message: skipped } as const]),
    ...checks.map(ofCheck),
  ]
}

function propertiesOf({ seed, durationMs, servers, traffic, faults }: Result): string[] {
  const property = (name: string, value: string | number | undefined) =>
    value === undefined ? [] : [element('property', { name, value })]
  const counts = faults.flatMap(({ name, counts: seen }) =>
    (['decided', 'injected', 'masked', 'delayed', 'surfaced', 'escaped', 'notReached'] as const).flatMap(
      (key) => property(`fault.${name}.${key}`, seen?.[key]),
    ),
  )
  const endings = Object.entries(traffic?.endings ?? {}).flatMap(([word, count]) =>
    property(`calls.${word}`, count),
  )
  return [
    ...property('seed', seed === undefined ? undefined : String(seed)),
    ...property('durationMs', durationMs),
    ...property('servers', servers.join(', ')),
    ...property('calls', traffic?.calls),
    ...endings,
    ...counts,
  ]
}

/** Returns a suite per scenario with a case per assertion, as JUnit's readers expect. */
export function junitOf(results: readonly Result[]): string {
  const suites = results.map((result) => {
    const cases = casesOf(result)
    const count = (kind: Case['kind']) => cases.filter((one) => one.kind === kind).length
    const numbers = {
      tests: cases.length,
      failures: count('failure'),
      errors: count('error'),
      skipped: count('skipped'),
    }
    const classname = `breakwater.scenario.${result.scenario}`
    const written = cases.map(({ name, kind, message }) =>
      kind === 'pass'
        ? element('testcase', { name, classname }, [element('system-out', {}, [escaped(message)])])
        : element('testcase', { name, classname }, [
            kind === 'skipped' ? element(kind, { message }) : element(kind, { message, type: kind }),
          ]),
    )
    const about = {
      name: result.scenario,
      ...numbers,
      time: inSeconds(result.tookMs),
      timestamp: new Date(result.startedAt).toISOString().replace(/Z$/, ''),
    }
    return {
      numbers,
      tookMs: result.tookMs,
      text: element('testsuite', about, [element('properties', {}, propertiesOf(result)), ...written]),
    }
  })
  const sum = (key: keyof (typeof suites)[number]['numbers']) =>
    suites.reduce((total, { numbers }) => total + numbers[key], 0)
  const all = {
    name: 'breakwater scenario',
    tests: sum('tests'),
    failures: sum('failures'),
    errors: sum('errors'),
    skipped: sum('skipped'),
    time: inSeconds(suites.reduce((total, { tookMs }) => total + tookMs, 0)),
  }
  return `<?xml version="1.0" encoding="UTF-8"?>\n${element(
    'testsuites',
    all,
    suites.map(({ text }) => text),
  )}\n`
}

/**
 * Resolves to the file behind a symbolic link, and to true if the report replaces a regular file. The file may be
 * missing.
 */
async function placeOf(path: string): Promise<{ readonly file: string; readonly isReplaced: boolean }> {
  const isMissing = ({ code }: NodeJS.ErrnoException) => code === 'ENOENT'
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (!isMissing(error)) throw error
  })
  if (found?.isDirectory() === true) throw new Error('it is a folder')
  if (found !== undefined) return { file: await realpath(path), isReplaced: found.isFile() }
  const link = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (!isMissing(error)) throw error
  })
  // `realpath` cannot resolve a link to a missing file, so the report is written through the link.
  return { file: path, isReplaced: link === undefined }
}

/** Resolves to the reason why no report can be written to `path`; undefined when it can be written. */
export async function unwritable(path: string): Promise<string | undefined> {
  try {
    const { file, isReplaced } = await placeOf(path)
    if (isReplaced) await access(dirname(file), constants.W_OK)
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

/**
 * Replaces the file in one step, so readers never see an incomplete report. Symbolic links stay links. Pipes and other
 * non-regular files are written directly.
 */
export async function writeJunit(path: string, results: readonly Result[]): Promise<void> {
  const { file, isReplaced } = await placeOf(path)
  if (!isReplaced) return writeFile(file, junitOf(results))
  const draft = `${file}.${process.pid}.new`
  try {
    await writeFile(draft, junitOf(results))
    await rename(draft, file)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
}
