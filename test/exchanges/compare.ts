import type { Exchange } from './player.ts'

/** Characters shown before and after the first difference of two texts. */
const BEFORE = 120
const AFTER = 240

/** Describes each exchange that differs from the record, in order. Empty: all are the same. */
export function differences(expected: readonly Exchange[], got: readonly Exchange[]): string[] {
  const found: string[] = []
  for (let index = 0; index < Math.max(expected.length, got.length); index++) {
    const [before, now] = [expected[index], got[index]]
    const which = `exchange ${index + 1}, ${now?.title ?? before?.title ?? ''}`
    if (now === undefined) found.push(`${which}: it was not played`)
    else if (before === undefined) found.push(`${which}: it is not in the record\n  got: ${shown(now)}`)
    else {
      const parts = partsOf(before, now)
      if (parts.length > 0) found.push([`${which}\n${indented(now.sent)}`, ...parts].join('\n'))
    }
  }
  return found
}

function partsOf(before: Exchange, now: Exchange): string[] {
  const pairs: readonly (readonly [name: string, before: string, now: string])[] = [
    ['title', before.title, now.title],
    ['request', before.sent, now.sent],
    ['status', String(before.status), String(now.status)],
    ['headers', before.headers.join('\n'), now.headers.join('\n')],
    ['body', before.body, now.body],
    ['end', before.end ?? 'complete', now.end ?? 'complete'],
  ]
  return pairs.flatMap(([name, expected, got]) => (expected === got ? [] : [part(name, expected, got)]))
}

/** Returns both texts, starting shortly before their first difference. */
function part(name: string, expected: string, got: string): string {
  let at = 0
  while (at < expected.length && expected[at] === got[at]) at++
  const around = (text: string) => text.slice(Math.max(0, at - BEFORE), at + AFTER)
  return `  ${name}, from character ${Math.max(0, at - BEFORE)} on\n  expected:\n${indented(around(expected))}\n  got:\n${indented(around(got))}`
}

const indented = (text: string) => text.replace(/^/gm, '    ')

const shown = ({ status, body }: Exchange) => `${status} ${body.slice(0, AFTER)}`
