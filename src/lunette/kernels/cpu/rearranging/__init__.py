"""Arrays that no kernel is quick on as they lie: turned, laid side by side or cut, a part at a time."""
