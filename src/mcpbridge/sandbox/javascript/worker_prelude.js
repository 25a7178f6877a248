// Evaluated first in every context. Its value is the one function that the worker calls; all that an expression can
// name lies in lexical variables, so that the global object holds what the language has and nothing else.

let result, text, rows, lines, exact;
const { atob, btoa } = globalThis;
const console = Object.freeze({ log() {}, info() {}, warn() {}, error() {}, debug() {} });

(function () {
  "use strict";
  const { parse, stringify, rawJSON } = JSON;
  const evaluate = (0, eval);
  const MOST_NAMES = 15;
  let shape = "";
  let outcome;

  const beside = ["queueMicrotask", "performance", "DOMException", "gc", "print", "atob", "btoa"];
  for (const name of [...beside, "DisposableStack", "AsyncDisposableStack"]) delete globalThis[name];

  // --- numbers that a double cannot hold ---

  // One object a number, so that === and Map keys work between the values of a result.
  const known = new Map();

  class Exact extends Number {
    #source;

    constructor(source) {
      super(source);
      this.#source = source;
    }

    toString() {
      return this.#source;
    }

    toJSON() {
      return rawJSON(this.#source);
    }

    // `"id " + x.id` and `x.id == 123` are exact; arithmetic and `<` go on as with any number; `x.id + 1` is refused
    // by the language (BigInt and number) rather than wrong.
    [Symbol.toPrimitive](hint) {
      if (hint === "string") return this.#source;
      return hint === "default" && /^-?\d+$/.test(this.#source) ? BigInt(this.#source) : this.valueOf();
    }
  }

  const significant = (digits) => digits.replace(/[eE].*/, "").replace(/\D/g, "").replace(/^0+/, "").replace(/0+$/, "");

  function number(value, source) {
    if (source.length < 16) return Number.isFinite(value) ? value : kept(source);
    const shown = String(value);
    if (shown === source) return value;
    return /[.eE]/.test(source) && significant(shown) === significant(source) ? value : kept(source);
  }

  function kept(source) {
    if (!known.has(source)) known.set(source, new Exact(source));
    return known.get(source);
  }

  function parsed(source) {
    return parse(source, (_, value, context) => (typeof value === "number" ? number(value, context.source) : value));
  }

  // `x => x.id === 12345678901234567` means the number as it is written.
  function withExactLiterals(source) {
    const tokens = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`|(?<![\w.$])(\d{16,})(?![\w.])/g;
    return source.replace(tokens, (token, digits) =>
      digits && !Number.isSafeInteger(Number(digits)) ? `exact("${digits}")` : token);
  }

  // --- what an expression may give beyond plain JSON ---

  const asJson = (prototype, toJSON) =>
    Object.defineProperty(prototype, "toJSON", { value: toJSON, configurable: true, writable: true });
  asJson(BigInt.prototype, function () { return rawJSON(this.toString()); });
  asJson(Set.prototype, function () { return [...this]; });
  asJson(Map.prototype, function () {
    const pairs = [...this];
    return pairs.some(([key]) => typeof key === "object" && !(key instanceof Exact)) ? pairs : Object.fromEntries(pairs);
  });
  asJson(Iterator.prototype, function () { return [...this]; });
  asJson(Object.getPrototypeOf(Int8Array.prototype), function () { return Array.from(this); });
  asJson(RegExp.prototype, function () { return String(this); });
  asJson(Error.prototype, function () { return String(this); });

  const join = Function.call.bind([].join);
  const flat = (...parts) => join(parts, "");

  function said(value) {
    if (value instanceof String || value instanceof Boolean) value = value.valueOf();
    if (typeof value === "string") {
      value = value.toWellFormed();
    } else if (typeof value === "number" && !Number.isFinite(value)) {
      value = String(value);
    } else if (value === undefined) {
      return failed("Gave", "undefined");
    } else if (typeof value === "function") {
      return failed("Gave", "a function");
    } else if (typeof value === "symbol") {
      return failed("Gave", "a symbol");
    } else {
      value = stringify(value);
      if (value === undefined) return failed("Gave", "undefined");
    }
    // A NUL would end the string on its way out of the engine, and the sum of two long strings would not get out.
    if (!value.includes("\0")) return flat("=", value);
    return flat("0", value.replaceAll("\x01", "\x01b").replaceAll("\0", "\x01a"));
  }

  // --- failures ---

  const part = (value) => String(value).slice(0, 2000);

  function failed(name, message, stack = "", offset = 0) {
    return flat("!", stringify([part(name), part(message), part(stack), offset, shape]));
  }

  function thrown(error, offset) {
    try {
      if (!(error instanceof Error)) return failed("", "it threw " + (typeof error === "object" ? stringify(error) : String(error)));
      return failed(error.name, error.message, error.stack, offset);
    } catch {
      return failed("Error", "it threw something that cannot be shown");
    }
  }

  function names(object) {
    const all = [];
    let count = 0;
    for (const key in object) {
      if (++count <= MOST_NAMES) all.push(/^[\w$]{1,40}$/.test(key) ? key : stringify(key.slice(0, 40)));
    }
    if (!count) return "without members";
    return (count === 1 ? "with the member " : "with the members ") + all.join(", ") +
      (count > MOST_NAMES ? ` and ${count - MOST_NAMES} more` : "");
  }

  function shapeOf(value) {
    if (Array.isArray(value)) {
      if (!value.length) return "an empty array";
      const first = value[0];
      const kind = first === null ? "null" : Array.isArray(first) ? "array" : typeof first;
      const many = `an array of ${value.length} ${kind === "null" ? "null" : kind}${value.length === 1 ? "" : "s"}`;
      return kind === "object" && !(first instanceof Exact) ? `${many} ${names(first)}` : many;
    }
    if (value === null) return "null";
    if (typeof value === "object" && !(value instanceof Exact)) return `an object ${names(value)}`;
    return typeof value === "string" ? `text of ${value.length} characters` : `a ${typeof value === "object" ? "number" : typeof value}`;
  }

  // --- running ---

  // Only compiles: whether code runs is then never in doubt when it fails.
  function compiled(before, source, after) {
    try {
      return { run: evaluate(`${before}\n${source}\n${after}`) };
    } catch (error) {
      return { error };
    }
  }

  function program(source) {
    let end = source.length;
    while (end && /[;\s]/.test(source[end - 1])) end--;
    const alone = source.slice(0, end);
    const expression = compiled("(function(){return (", alone, ")})");
    if (expression.run) return expression;
    const waiting = compiled("(async function(){return (", alone, ")})");
    if (waiting.run) return waiting;
    // In a static block neither `return` nor `await` may stand: such statements have a value of their own.
    if (compiled("(function(){class _{static{", source, "}}})").run) return { run: () => evaluate(source), offset: 0 };
    const body = compiled("(function(){", source, "})");
    if (body.run) return body;
    const waitingBody = compiled("(async function(){", source, "})");
    if (waitingBody.run) return waitingBody;
    if (/\breturn\b/.test(source)) return body;
    try {
      evaluate(source); // does not compile, so does not run
      return expression;
    } catch (error) {
      return { error, offset: 0 };
    }
  }

  function settle(value) {
    if (typeof value === "function") value = value(result);
    if (value === null || typeof value !== "object" || typeof value.then !== "function") return said(value);
    outcome = "?";
    const guarded = (work) => (value) => {
      try {
        outcome = work(value);
      } catch (error) {
        outcome = thrown(error, 1);
      }
    };
    value.then(guarded(said), guarded((error) => thrown(error, 1)));
    return "?";
  }

  const host = {
    bind(name, value) {
      if (name === "result") {
        result = value;
        shape = shapeOf(value);
      } else if (name === "text") {
        text = value;
      } else {
        rows = value;
      }
    },
    bindExactly(name, source) {
      exact = (digits) => number(Number(digits), digits);
      host.bind(name, parsed(source));
    },
    splitLines(source) {
      lines = source.replace(/\r?\n$/, "").split(/\r?\n/);
    },
    run(source) {
      let offset = 1;
      try {
        const made = program(exact ? withExactLiterals(source) : source);
        offset = made.offset ?? 1;
        if (!made.run) return thrown(made.error, offset);
        return settle((0, made.run)());
      } catch (error) {
        return thrown(error, offset);
      }
    },
    outcome: () => outcome,
  };

  return (action, ...values) => host[action](...values);
})();
