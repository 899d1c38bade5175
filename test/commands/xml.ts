import assert from 'node:assert/strict'

/** An XML element without texts. */
export interface Element {
  readonly name: string
  readonly attributes: Readonly<Record<string, string>>
  readonly children: Element[]
}

const entities: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" }

/** Returns a text with its entities decoded. Fails at characters that XML 1.0 forbids in texts or attributes. */
function unescaped(text: string): string {
  assert.doesNotMatch(text, /</)
  assert.doesNotMatch(text, /&(?!(?:amp|lt|gt|quot|apos);)/)
  return text.replace(/&(\w+);/g, (_, name: string) => entities[name] ?? '')
}

/** Parses a document as strictly as XML asks for: elements, attributes and texts, as far as reports use XML. */
export function parseXml(text: string): Element {
  assert.doesNotMatch(text, /[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/u, 'a character')
  const head = '<?xml version="1.0" encoding="UTF-8"?>'
  assert.ok(text.startsWith(head))
  const root: Element = { name: '', attributes: {}, children: [] }
  const open = [root]
  const tag = /<(\/?)([A-Za-z][\w-]*)((?:\s+[A-Za-z][\w-]*="[^"<]*")*)\s*(\/?)>|([^<]+)/gy
  tag.lastIndex = head.length
  for (let at = head.length; at < text.length; at = tag.lastIndex) {
    const found = tag.exec(text)
    assert.ok(found, `no XML at ${JSON.stringify(text.slice(at, at + 40))}`)
    const [, isEnd, name = '', written = '', isEmpty, between] = found
    if (between !== undefined) {
      unescaped(between)
      assert.doesNotMatch(between, /\]\]>/)
      continue
    }
    if (isEnd === '/') {
      assert.equal(open.pop()?.name, name)
      continue
    }
    const attributes: Record<string, string> = {}
    for (const [, key = '', value = ''] of written.matchAll(/([\w-]+)="([^"]*)"/g)) {
      assert.ok(!Object.hasOwn(attributes, key), `${key} twice`)
      attributes[key] = unescaped(value)
    }
    const element: Element = { name, attributes, children: [] }
    open.at(-1)?.children.push(element)
    if (isEmpty !== '/') open.push(element)
  }
  assert.equal(open.length, 1, 'all elements end')
  const [only, ...more] = root.children
  assert.ok(only && more.length === 0)
  return only
}
